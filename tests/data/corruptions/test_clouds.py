"""Point-cloud corruptions: counts, boxes, seeds, errors, what stays and what goes, warps and views."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.cloud_corruptions import plain
from ctta.base.errors import CttaError
from ctta.data.corruptions import CLOUD_NAMES, SEVERITIES, clouds, corrupt_clouds
from ctta.data.corruptions.clouds import CONSTANTS
from ctta.data.corruptions.warps import CONTROL

NORMED = ("uniform", "background", "impulse", "upsampling", "distortion_rbf", "distortion_rbf_inv")
NORMED += ("shear", "rotation", "distortion", "occlusion")


def ellipsoids(count=3, points=1024, seed=0):
    """Random points on ellipsoids of different proportions, within the unit sphere, not at its centre."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((count, points, 3))
    x *= generator.uniform(0.3, 0.7, (count, 1, 3)) / np.linalg.norm(x, axis=2, keepdims=True)
    return (x + 0.1).astype(np.float32)


@pytest.fixture
def unnormed(monkeypatch):
    """Corruptions without their last step, so that a point can be followed."""
    monkeypatch.setattr(clouds, "normalise", lambda x: x)


def gone(x, y):
    """Which points of one cloud are not in another."""
    return ~(x[:, None] == y).all(axis=2).any(axis=1)


# What every corruption must honour.


def test_the_names_are_the_fifteen():
    assert len(CLOUD_NAMES) == 15
    assert tuple(clouds.CORRUPTIONS) == CLOUD_NAMES == tuple(CONSTANTS)
    assert all(clouds.CORRUPTIONS[name].__name__ == name for name in CLOUD_NAMES)
    assert all(len(constants) == len(SEVERITIES) for constants in CONSTANTS.values())


COUNTS = {
    "background": (1046, 1049, 1053, 1058, 1075),
    "upsampling": (1228, 1280, 1365, 1536, 2048),
    "density": (949, 874, 799, 724, 649),
    "cutout": (964, 934, 874, 814, 724),
    "lidar": (768,) * 5,
}


@pytest.mark.parametrize("points", [1024, 2048])
@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_counts_are_those_of_the_public_sets(name, points):
    x = ellipsoids(2, points)
    before = x.copy()
    for severity in SEVERITIES:
        y = corrupt_clouds(x, name, severity)
        assert y.dtype == np.float32
        assert y.shape == (2, COUNTS.get(name, (1024,) * 5)[severity - 1], 3)
        assert np.isfinite(y).all()
        assert not np.shares_memory(x, y)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_smaller_clouds_keep_their_number(name):
    counts = {"background": 630, "upsampling": 1200, "density": 225, "cutout": 300, "lidar": 450}
    assert corrupt_clouds(ellipsoids(1, 600), name).shape == (1, counts.get(name, 600), 3)


@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_a_cloud_does_not_depend_on_its_batch(name, monkeypatch):
    x = ellipsoids(7, 1100)
    whole = corrupt_clouds(x, name, 5, seed=3, first=40)
    pieces = [corrupt_clouds(x[a:b], name, 5, seed=3, first=40 + a) for a, b in ((0, 1), (1, 4), (4, 7))]
    assert np.array_equal(whole, np.concatenate(pieces))
    order = np.array([5, 0, 6, 2])
    assert np.array_equal(whole[order], corrupt_clouds(x[order], name, 5, seed=3, first=40 + order))
    for chunk, threads in ((1, 3), (2500, 2), (2**20, 1)):
        monkeypatch.setattr(clouds, "CHUNK", chunk)
        monkeypatch.setattr("ctta.data.corruptions.domain.THREADS", threads)
        assert np.array_equal(whole, corrupt_clouds(x, name, 5, seed=3, first=40))


@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_seed_and_index_decide_the_draws(name):
    x = np.repeat(ellipsoids(1), 2, axis=0)
    y = corrupt_clouds(x, name)
    assert np.array_equal(y, corrupt_clouds(x, name, seed=0))
    assert not np.array_equal(y, corrupt_clouds(x, name, seed=1))
    assert not np.array_equal(y[0], y[1])


@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_a_plain_loop_gives_the_same(name):
    x = ellipsoids(2)
    for severity in (1, 4):
        assert np.abs(plain(x, name, severity) - corrupt_clouds(x, name, severity)).max() < 1e-5


@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_the_longest_side_is_2_where_the_table_says_so(name):
    y = corrupt_clouds(ellipsoids(3), name, 3)
    low, high = y.min(axis=1), y.max(axis=1)
    fits = np.allclose((high - low).max(axis=1), 2, atol=1e-5) and np.allclose(low + high, 0, atol=1e-5)
    assert fits == (name in NORMED)


@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_points_in_one_place_or_on_a_line_work(name):
    x = np.zeros((2, 1024, 3), np.float32)
    x[1, :, 1] = np.linspace(-1, 1, 1024)
    assert np.isfinite(corrupt_clouds(x, name)).all()


def test_the_global_generator_is_left_alone():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    for name in CLOUD_NAMES:
        corrupt_clouds(ellipsoids(1), name)
    assert np.random.random() == expected  # noqa: NPY002


def test_no_clouds_give_no_clouds():
    assert corrupt_clouds(np.zeros((0, 1024, 3), np.float32), "lidar").shape == (0, 1024, 3)


def test_a_view_that_is_not_contiguous_works():
    x = ellipsoids(4)
    assert np.array_equal(corrupt_clouds(x[::2, ::-1], "cutout"), corrupt_clouds(x[::2, ::-1].copy(), "cutout"))


MONOTONE = ("uniform", "gaussian", "impulse", "distortion_rbf", "distortion_rbf_inv", "shear", "rotation", "distortion")


@pytest.mark.parametrize("name", MONOTONE)
def test_more_severity_is_more_change(name, unnormed):
    x = ellipsoids(24)
    change = [np.linalg.norm(corrupt_clouds(x, name, s) - x, axis=2).mean() for s in SEVERITIES]
    assert all(low < high for low, high in pairwise(change)), change


# Errors.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "oclusion"}, "Did you mean 'occlusion'"),
        ({"name": "fog"}, "No corruption is called 'fog'. Accepted: background"),
        ({"severity": 0}, "must be one of 1, 2, 3, 4, 5. Got 0"),
        ({"severity": True}, "Got True"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
        ({"first": -2}, "`first` must be a whole number of at least 0"),
        ({"first": np.array([1, 2, 3])}, "one whole number of at least 0 for every sample"),
        ({"points": [[1]]}, "Got list: convert it first"),
        ({"points": np.zeros((2, 1024, 3), np.float16)}, "convert with .astype(np.float32)"),
        ({"points": np.zeros((1024, 3), np.float32)}, "add the batch axis"),
        ({"points": np.zeros((2, 3, 1024), np.float32)}, "move the three coordinates last"),
        ({"points": np.zeros((2, 399, 3), np.float32)}, "at least 400 points. Got 399"),
        ({"points": np.zeros((2, 300, 3), np.float32), "name": "cutout"}, "at least 301 points. Got 300"),
        ({"points": np.zeros((2, 500, 3), np.float32), "name": "density_inc"}, "at least 501 points. Got 500"),
        ({"points": np.zeros((2, 0, 3), np.float32), "name": "uniform"}, "at least 1 points. Got 0"),
        ({"points": np.full((2, 1024, 3), np.nan, np.float32)}, "Point cloud 0 holds NaN or infinity, as do 1 others"),
        ({"points": np.full((2, 1024, 3), 250, np.float32)}, "divide by its largest norm"),
        ({"meshes": []}, "one mesh per point cloud. Got 0 for 2"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(arguments, message):
    call = {"points": ellipsoids(2), "name": "density", **arguments}
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        corrupt_clouds(**call)
    assert isinstance(caught.value, CttaError)


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ((np.zeros((3, 3)), np.array([[0, 1, 3]])), "one triangle of three places among them"),
        ((np.zeros((3, 3)), np.zeros((0, 3), int)), "one triangle of three places among them"),
        ((np.zeros((3, 3)), np.array([[0.0, 1, 2]])), "one triangle of three places among them"),
        ((np.full((3, 3), np.inf), np.array([[0, 1, 2]])), "not finite"),
        ((np.zeros((3, 3)), np.array([[0, 1, 2]])), "no surface that a camera could see"),
        ("missing.off", "There is no file missing.off"),
    ],
)
def test_a_bad_mesh_is_refused(mesh, message):
    with pytest.raises(CttaError, match=re.escape(message)):
        corrupt_clouds(ellipsoids(1), "lidar", meshes=[mesh])


# Noise.


def test_uniform_moves_every_coordinate_a_little(unnormed):
    x = ellipsoids(40)
    move = corrupt_clouds(x, "uniform", 4) - x
    assert 0.0399 < np.abs(move).max() <= 0.04 + 1e-6
    assert move.std() == pytest.approx(0.04 / np.sqrt(3), rel=0.01)


def test_gaussian_clips_to_the_cube_and_does_not_norm():
    x = ellipsoids(40)
    move = corrupt_clouds(x, "gaussian", 5) - x
    assert move.std() == pytest.approx(0.03, rel=0.01)
    assert corrupt_clouds(np.ones((1, 1024, 3), np.float32), "gaussian").max() == 1


def test_background_adds_points_anywhere_in_the_cube(unnormed):
    x = ellipsoids(40)
    y = corrupt_clouds(x, "background", 5)
    assert np.array_equal(y[:, :1024], x)
    added = y[:, 1024:]
    assert 0.99 < np.abs(added).max() <= 1
    assert np.abs(added.mean()) < 0.03
    assert added.std() == pytest.approx(1 / np.sqrt(3), rel=0.03)


def test_impulse_moves_one_in_ten_by_a_tenth(unnormed):
    x = ellipsoids(4)
    move = corrupt_clouds(x, "impulse", 5) - x
    moved = move.any(axis=2)
    assert moved.sum(axis=1).tolist() == [102] * 4
    assert np.allclose(np.abs(move[moved]), 0.1)
    assert len(np.unique(np.sign(move[moved]), axis=0)) == 8


def test_upsampling_adds_a_noisy_copy_of_different_points(unnormed):
    x = np.stack(np.meshgrid([-0.8, 0, 0.8], np.linspace(-1, 1, 20), np.linspace(-1, 1, 20)), -1).reshape(1, -1, 3)
    x = (0.5 * x).astype(np.float32)[:, :1000]  # no two points nearer than 0.05
    y = corrupt_clouds(x, "upsampling", 4)[0]
    assert np.array_equal(y[:1000], x[0])
    distance = np.abs(y[1000:, None] - x[0]).max(axis=2).min(axis=1)
    assert len(y) == 1500
    assert distance.max() <= 0.05 + 1e-6
    assert distance.max() > 0.02


# Warps.


@pytest.mark.parametrize("name", ["distortion_rbf", "distortion_rbf_inv"])
def test_control_points_go_the_given_length(name, unnormed):
    x = CONTROL[None].astype(np.float32)
    for severity, length in zip(SEVERITIES, (0.025, 0.05, 0.075, 0.1, 0.125), strict=True):
        move = corrupt_clouds(x, name, severity) - x
        assert np.allclose(np.linalg.norm(move, axis=2), length, atol=1e-5)
        assert np.linalg.norm(move.mean(axis=1)) < 0.3 * length


@pytest.mark.parametrize("name", ["distortion_rbf", "distortion_rbf_inv", "distortion"])
def test_without_moves_nothing_moves(name, unnormed):
    x = ellipsoids(2).astype(np.float64)
    generators = [np.random.default_rng(i) for i in range(2)]
    assert np.allclose(clouds.CORRUPTIONS[name](x, generators, 0.0), x, atol=1e-12)


def test_the_corners_of_the_box_go_as_their_control_points(unnormed):
    x = np.tile(CONTROL[[0, 124]], (2000, 1, 1)).astype(np.float32)
    move = corrupt_clouds(x, "distortion", 2) - x
    assert 0.39 < np.abs(move).max() <= 0.4 + 1e-6
    assert move.std() == pytest.approx(0.4 / np.sqrt(3), rel=0.02)


# Density.


def neighbourhood_of_one(x, taken, size):
    """Whether all points taken are among the `size` nearest of some point."""
    _, near = cKDTree(x).query(x, k=size)
    return any(np.isin(taken, row).all() for row in near)


def test_density_thins_out_a_neighbourhood():
    x = ellipsoids(1)
    y = corrupt_clouds(x, "density", 1)
    taken = np.flatnonzero(gone(x[0], y[0]))
    assert len(taken) == 75
    assert neighbourhood_of_one(x[0], taken, 100)


def test_cutout_deletes_a_neighbourhood():
    x = ellipsoids(1)
    y = clouds.cutout(x.astype(np.float64), [np.random.default_rng(0)], 1, 30)
    taken = np.flatnonzero(gone(x[0], y[0]))
    assert len(taken) == 30
    assert neighbourhood_of_one(x[0], taken, 30)


def test_cutout_leaves_a_far_cluster_alone_or_takes_from_it_alone():
    # Two clusters of 512 points: each of the two neighbourhoods of 30 lies within one of them.
    x = ellipsoids(1) * np.float32(0.1)
    x[0, 512:, 0] += 0.8
    for seed in range(8):
        lost = gone(x[0], corrupt_clouds(x, "cutout", 1, seed=seed)[0])
        assert (lost[:512].sum(), lost[512:].sum()) in ((60, 0), (30, 30), (0, 60))


def test_density_inc_keeps_neighbourhoods_and_thins_out_the_rest():
    x = ellipsoids(1, 2048)
    y = corrupt_clouds(x, "density_inc", 1)[0]
    place = cKDTree(x[0]).query(y)[1]
    assert np.array_equal(x[0, place], y)
    dense, others = place[:100], place[100:]
    assert len(np.unique(dense)) == 100
    assert neighbourhood_of_one(x[0], dense, 100)
    assert not np.isin(others, dense).any()
    # 924 draws with replacement among 1948: 1948 (1 - exp(-924 / 1948)) = 736 different ones.
    assert len(np.unique(others)) == pytest.approx(736, abs=40)


def test_1024_of_2048_points_are_drawn_first():
    x = ellipsoids(1, 2048)
    y = corrupt_clouds(x, "cutout", 1)[0]
    assert len(np.unique(y, axis=0)) == 964
    place = cKDTree(x[0]).query(y)[1]
    assert np.array_equal(x[0, place], y)
    assert 350 < (place < 1024).sum() < 614  # from both halves


# Linear maps.


def test_the_shear_matrix_by_hand():
    matrix = clouds.shear_matrix(np.array([[0.1, 0.2, 0.3, 0.4]]))[0]
    assert matrix.tolist() == [[1, 0, 0.1], [0.2, 1, 0.3], [0.4, 0, 1]]
    assert np.allclose(np.array([1, 2, 3]) @ matrix, [1 + 0.4 + 1.2, 2, 0.1 + 0.6 + 3])


def test_the_rotation_matrix_by_hand():
    turns = clouds.rotation_matrix(np.radians([[90, 0, 0], [0, 90, 0], [0, 0, 90], [20, -30, 40]]))
    assert np.allclose(np.array([0, 1, 0]) @ turns[0], [0, 0, -1])
    assert np.allclose(np.array([0, 0, 1]) @ turns[1], [-1, 0, 0])
    assert np.allclose(np.array([1, 0, 0]) @ turns[2], [0, -1, 0])
    oracle = Rotation.from_euler("xyz", [-20, 30, -40], degrees=True)
    assert np.allclose(np.eye(3) @ turns[3], oracle.apply(np.eye(3)))


def linear_map(x, y):
    """The matrix of y = x @ matrix."""
    return np.linalg.lstsq(x.astype(np.float64), y.astype(np.float64), rcond=None)[0]


def test_shear_draws_its_entries_around_the_constant(unnormed):
    x = ellipsoids(60)
    matrices = np.stack([linear_map(*pair) for pair in zip(x, corrupt_clouds(x, "shear", 4), strict=True)])
    entries = matrices[:, [0, 1, 1, 2], [2, 0, 2, 0]]
    matrices[:, [0, 1, 1, 2], [2, 0, 2, 0]] = 0
    assert np.allclose(matrices, np.eye(3), atol=1e-5)
    assert 0.15 - 1e-5 < np.abs(entries).min() < 0.16
    assert 0.24 < np.abs(entries).max() < 0.25 + 1e-5
    assert 0.3 < (entries > 0).mean() < 0.7


def test_rotation_draws_its_angles_around_the_constant(unnormed):
    x = ellipsoids(60)
    matrices = [linear_map(*pair).T for pair in zip(x, corrupt_clouds(x, "rotation", 5), strict=True)]
    angles = Rotation.from_matrix(matrices).as_euler("xyz", degrees=True)
    assert 12.5 - 1e-3 < np.abs(angles).min() < 13
    assert 17 < np.abs(angles).max() < 17.5 + 1e-3
    assert 0.3 < (angles > 0).mean() < 0.7


# Views.


def unit_spheres(count):
    x = np.random.default_rng(0).standard_normal((count, 1024, 3))
    return (x / np.linalg.norm(x, axis=2, keepdims=True)).astype(np.float32)


def direction(y):
    """The mean azimuth of a cloud, 0 along z and a quarter turn along x."""
    return np.arctan2(y[..., 0].mean(axis=-1), y[..., 2].mean(axis=-1))


@pytest.mark.parametrize("view", SEVERITIES)
def test_every_view_looks_from_its_own_fifth(view):
    y = corrupt_clouds(unit_spheres(8), "lidar", view)
    off = np.angle(np.exp(1j * (direction(y) - 2 * np.pi * view / 5)))
    assert np.abs(off).max() < np.pi / 5 + 0.1
    assert y[..., 1].mean() > 0  # from above


def test_occlusion_shows_the_near_side_of_a_sphere_from_above(unnormed):
    y = corrupt_clouds(unit_spheres(8), "occlusion", 5)
    assert all(310 < len(np.unique(cloud, axis=0)) < 430 for cloud in y)  # a third of 1024 and a rim, some doubled
    sight = y.mean(axis=1)
    sight /= np.linalg.norm(sight, axis=1, keepdims=True)
    assert (y * sight[:, None]).sum(axis=2).min() > 0
    assert np.abs(direction(y)).max() < np.pi / 5 + 0.1
    elevation = np.degrees(np.arcsin(sight[:, 1]))
    assert ((elevation > 27) & (elevation < 63)).all()  # 30 to 60 degrees, give or take the draw of the points


def test_occlusion_takes_points_of_the_cloud(unnormed):
    x = ellipsoids(1)
    y = corrupt_clouds(x, "occlusion", 2)[0]
    assert np.array_equal(y, x[0, cKDTree(x[0]).query(y)[1]])


CUBE = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
QUADS = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
TRIANGLES = np.array([triangle for a, b, c, d in QUADS for triangle in ((a, b, c), (a, c, d))])


def test_a_mesh_is_looked_at_instead_of_the_points():
    slab = CUBE * [4, 2, 4.0] + [9, 9, 9]  # in any unit, at any place
    y = corrupt_clouds(ellipsoids(1), "occlusion", 5, meshes=[(slab, TRIANGLES)])[0]
    assert y.shape == (1024, 3)
    assert len(np.unique(y, axis=0)) == 1024
    # From above the top shows, and of the sides at most those that face the camera: one or two of them.
    top = np.isclose(y[:, 1], y[:, 1].max(), atol=1e-5)
    assert 0.4 < top.mean() < 0.95
    ends = [(axis, end(y[:, axis])) for axis in (0, 2) for end in (np.min, np.max)]
    sides = [np.isclose(y[~top, axis], end, atol=1e-5) for axis, end in ends]
    assert np.any(sides, axis=0).all()
    assert sum(side.mean() > 0.02 for side in sides) <= 2
    assert sides[3].mean() > 0.5  # view 5 looks from +z


def test_an_off_file_is_turned_from_z_up_to_y_up(tmp_path):
    # A tall box, z up: x and y from 0 to 1, z from 0 to 4. As a cloud it must stand, at most half as wide as high.
    vertices = (CUBE + 1) / 2 * [1, 1, 4]
    lines = [
        "OFF",
        "8 6 0",
        *(" ".join(map(str, v)) for v in vertices),
        *(f"4 {a} {b} {c} {d}" for a, b, c, d in QUADS),
    ]
    path = tmp_path / "tower.off"
    path.write_text("\n".join(lines))
    y = corrupt_clouds(ellipsoids(2), "lidar", 1, meshes=[path, str(path)])
    extent = y.max(axis=1) - y.min(axis=1)
    assert np.allclose(extent[:, 1], 2, atol=0.2)
    assert (extent[:, [0, 2]] < 0.6).all()
    # The turn takes (x, y, z) to (-x, z, y).
    turned = np.stack([-vertices[:, 0], vertices[:, 2], vertices[:, 1]], axis=1)
    assert np.array_equal(y, corrupt_clouds(ellipsoids(2), "lidar", 1, meshes=[(turned, TRIANGLES)] * 2))


def test_meshes_follow_their_clouds(monkeypatch):
    meshes = [(CUBE * [1, s, 1.0], TRIANGLES) for s in (0.2, 0.5, 0.8)]
    x = ellipsoids(3)
    monkeypatch.setattr(clouds, "CHUNK", 1)
    whole = corrupt_clouds(x, "occlusion", meshes=meshes)
    assert np.array_equal(whole[2:], corrupt_clouds(x[2:], "occlusion", first=2, meshes=meshes[2:]))
    assert np.array_equal(corrupt_clouds(x, "shear", meshes=meshes), corrupt_clouds(x, "shear"))
