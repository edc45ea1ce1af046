"""What a camera sees: of a sphere, of plates, of cubes; and the .off reader."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ctta.base.errors import InputError
from ctta.data.corruptions import visibility
from ctta.data.corruptions.visibility import Camera, cast_rays, read_off, scan, visible


def sphere(count=1024):
    """Points spread evenly over the unit sphere."""
    height = 1 - (2 * np.arange(count) + 1) / count
    angle = np.arange(count) * np.pi * (3 - np.sqrt(5))
    level = np.sqrt(1 - height**2)
    return np.stack([level * np.cos(angle), height, level * np.sin(angle)], axis=1)


def box(low, high):
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    vertices = np.asarray(low) + corners * (np.asarray(high) - low)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return vertices, np.array([triangle for a, b, c, d in quads for triangle in ((a, b, c), (a, c, d))])


def cube(half):
    return box([-half] * 3, [half] * 3)


@pytest.mark.parametrize(
    ("angle", "tilt", "position"),
    [(0, 90, (0, 0, 3)), (90, 90, (3, 0, 0)), (0, 180, (0, 3, 0)), (180, 90, (0, 0, -3)), (0, 120, (0, 1.5, 2.598076))],
)
def test_where_the_camera_stands(angle, tilt, position):
    camera = Camera(np.radians(angle), np.radians(tilt), 3)
    assert np.allclose(camera.position, position, atol=1e-6)
    assert np.allclose(camera.axes @ camera.axes.T, np.eye(3))
    assert np.allclose(camera.axes[2], -np.array(position) / 3, atol=1e-6)


# Hidden-point removal.


@pytest.mark.parametrize("count", [512, 1024, 2048])
def test_of_a_sphere_the_near_cap_is_seen(count):
    # From a distance of 3 the horizon lies at a height of 1/3.
    points, camera = sphere(count), Camera(0.7, 2.2, 3)
    height = points @ camera.position / 3
    seen = np.zeros(count, bool)
    seen[visible(points, camera.position)] = True
    assert seen[height > 0.34].all()
    assert not seen[height < 0.15].any()
    assert abs(seen.mean() - 1 / 3) < 0.06


def test_a_plate_hides_what_lies_behind_it():
    side = np.linspace(-1, 1, 30)
    front = np.array([(x, y, 0.5) for x in side for y in side])
    behind = front * [0.4, 0.4, -1]  # from (0, 0, 3) its edge would show at 0.4 * 2.5 / 3.5 of the plate's
    seen = visible(np.concatenate([front, behind]), np.array([0.0, 0, 3]))
    assert np.array_equal(seen, np.arange(len(front)))
    assert len(visible(behind, np.array([0.0, 0, 3]))) == len(behind)


def test_in_one_plane_with_the_camera_all_are_seen():
    line = np.linspace(-1, 1, 50)[:, None] * np.array([0.0, 1, 0])
    assert np.array_equal(visible(line, np.array([0.0, 0, 3])), np.arange(50))
    assert np.array_equal(visible(np.zeros((5, 3)), np.array([0.0, 0, 3])), np.arange(5))


# Rays.


def test_of_a_cube_from_the_front_every_pixel_of_its_face_is_hit():
    # The face is 0.9 * 365 / 2.1 = 156.4 pixels to each side of the middle: 156 centres at 0.5, 1.5, ... 155.5.
    seen = cast_rays(cube(0.9), Camera(0, np.pi / 2, 3))
    assert len(seen) == 312**2
    assert np.allclose(seen[:, 2], 0.9)
    step = 2.1 / 365
    assert np.allclose(np.unique(seen[:, 0].round(9)), (np.arange(312) - 155.5) * step)
    assert np.allclose(np.unique(seen[:, 1].round(9)), (np.arange(312) - 155.5) * step)


def test_of_a_cube_from_a_corner_three_faces_are_seen():
    camera = Camera(np.pi / 4, np.radians(130), 3)  # from above, between +x and +z
    seen = cast_rays(cube(1), camera)
    on = np.isclose(seen, 1)
    assert on.any(axis=1).all()
    assert np.abs(seen).max() < 1 + 1e-9
    shares = on.mean(axis=0)
    assert shares.min() > 0.2
    assert abs(shares[0] - shares[2]) < 0.01
    # The middle of a face is seen to within a pixel, 3/365; the far corner is not seen at all.
    for middle in np.eye(3):
        assert np.linalg.norm(seen - middle, axis=1).min() < 0.01
    assert np.linalg.norm(seen + 1, axis=1).min() > 1


def test_winding_and_groups_do_not_matter(monkeypatch):
    vertices, faces = cube(0.8)
    camera = Camera(1, 2.3, 3)
    seen = cast_rays((vertices, faces), camera)
    assert np.allclose(seen, cast_rays((vertices, faces[:, ::-1]), camera))
    for pairs in (1, 1000):
        monkeypatch.setattr(visibility, "PAIRS", pairs)
        assert np.array_equal(seen, cast_rays((vertices, faces), camera))


def test_what_stands_in_front_hides_what_is_behind():
    (front, faces), (behind, _) = box([-1, -1, 0.5], [1, 1, 0.9]), box([-0.5, -0.5, -0.9], [0.5, 0.5, -0.2])
    camera = Camera(0, np.pi / 2, 3)
    both = np.concatenate([behind, front]), np.concatenate([faces, faces + 8])
    assert np.array_equal(cast_rays(both, camera), cast_rays((front, faces), camera))
    assert np.allclose(cast_rays((behind, faces), camera)[:, 2], -0.2)


def test_rays_agree_with_a_plain_intersection():
    """Möller and Trumbore, one ray and one triangle at a time, on a few pixels."""
    generator = np.random.default_rng(0)
    vertices, faces = generator.uniform(-1, 1, (12, 3)), generator.integers(12, size=(8, 3))
    camera = Camera(0.4, 2.1, 3)
    seen = cast_rays((vertices, faces), camera)
    assert len(seen) > 1000
    for point in seen[:: len(seen) // 40]:
        ray, hits = point - camera.position, []
        for a, b, c in vertices[faces]:
            across = np.cross(ray, c - a)
            area = (b - a) @ across
            if area == 0:
                continue
            u = (camera.position - a) @ across / area
            other = np.cross(camera.position - a, b - a)
            v, t = ray @ other / area, (c - a) @ other / area
            if min(u, v, 1 - u - v) > -1e-6:
                hits.append(t)
        assert min(hits) == pytest.approx(1, abs=1e-6)


# Files.

SQUARE = "4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0.5\n4 0 1 2 3\n"


@pytest.mark.parametrize("text", ["OFF\n" + SQUARE, "OFF" + SQUARE, "OFF " + SQUARE, "# made\nOFF\n\n" + SQUARE])
def test_an_off_file_is_read_and_its_polygons_cut(text, tmp_path):
    path = tmp_path / "square.off"
    path.write_text(text)
    vertices, faces = read_off(path)
    assert vertices.tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.5]]
    assert faces.tolist() == [[0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line is not OFF"),
        ("ply\n", "the first line is not OFF"),
        ("OFF\n4 2 0\n" + SQUARE.split("\n", 1)[1], "it ends after 1 of 2 faces"),
        ("OFF\n1 1 0\n0 zero 0\n3 0 0 0\n", "could not convert"),
        (None, "There is no file"),
    ],
)
def test_a_broken_off_file_is_refused_by_name(text, message, tmp_path):
    path = tmp_path / "broken.off"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_off(path)
    assert "broken.off" in str(caught.value)


def test_a_scan_snaps_to_the_middle_of_its_bands():
    # Degrees from the up axis, the first at 80: bands begin at 80, 81, ... and keep the second and third quarter.
    polar = np.radians([80, 80.3, 80.7, 80.8, 81.2, 81.5, 82.74])
    azimuth, distance = np.array([0, 0.3, -2, 1, 1, 3, -0.5]), np.array([4, 4.5, 5, 5, 5, 5.5, 6])
    x = np.stack([np.sin(polar) * np.cos(azimuth), np.cos(polar), np.sin(polar) * np.sin(azimuth)], axis=1)
    y = scan(distance[:, None] * x)
    assert np.allclose(np.degrees(np.arccos(y[:, 1] / np.linalg.norm(y, axis=1))), [80.5, 80.5, 81.5, 82.5])
    assert np.allclose(np.arctan2(y[:, 2], y[:, 0]), [0.3, -2, 3, -0.5])
    assert np.allclose(np.linalg.norm(y, axis=1), [4.5, 5, 5.5, 6])


def test_a_scan_of_one_point_keeps_it():
    y = scan(np.array([[3.0, 0, 4]]))
    assert np.allclose(y, 5 * np.array([[0.6 * np.cos(np.pi / 360), -np.sin(np.pi / 360), 0.8 * np.cos(np.pi / 360)]]))
