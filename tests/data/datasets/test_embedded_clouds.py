"""The generated solids: points lie on the surfaces they should, evenly, and never change."""

from __future__ import annotations

import numpy as np
import pytest

from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.datasets.embedded_clouds import SOLIDS, arc, facets, placed, revolve, solids, standing


def made(name: str, seed: int = 0) -> np.ndarray:
    return SOLIDS[name](np.random.default_rng(seed))


def radius(points: np.ndarray) -> np.ndarray:
    return np.hypot(points[:, 0], points[:, 2])


@pytest.mark.parametrize("seed", range(3))
def test_round_solids_lie_on_their_surfaces(seed):
    p = made("ball", seed)
    height = np.abs(p[:, 1]).max()
    assert np.abs(radius(p) ** 2 + (p[:, 1] / height) ** 2 - 1).max() < 0.02  # 47 flat segments, and the top is missed
    p = made("cylinder", seed)
    top = p[:, 1].max()
    side = np.isclose(radius(p), 1)
    assert np.all(side | np.isclose(p[:, 1], 0) | np.isclose(p[:, 1], top))
    assert side.any()
    assert (~side).any()
    p = made("cone", seed)
    wall = p[p[:, 1] > 0.01]
    slope = wall[:, 1] / (1 - radius(wall))
    assert np.allclose(slope, slope[0])
    p = made("frustum", seed)
    wall = p[(p[:, 1] > 0.01) & (p[:, 1] < p[:, 1].max() - 1e-9)]
    slope = wall[:, 1] / (1 - radius(wall))
    assert np.allclose(slope, slope[0])
    p = made("torus", seed)
    thick = np.hypot(radius(p) - 1, p[:, 1])
    assert np.ptp(thick) < 2e-2 * thick.max()
    p = made("bowl", seed)
    assert p[:, 1].max() <= 1e-9
    p = made("capsule", seed)
    straight = (p[:, 1] > 0) & np.isclose(radius(p), 1)
    below = p[p[:, 1] < 0]
    assert np.abs(np.linalg.norm(below, axis=1) - 1).max() < 1e-2
    assert straight.any()
    p = made("tube", seed)
    assert radius(p).min() >= 0.5
    walls = np.isclose(radius(p), radius(p).min()) | np.isclose(radius(p), 1)
    assert np.all(walls | np.isclose(p[:, 1], 0) | np.isclose(p[:, 1], p[:, 1].max()))


@pytest.mark.parametrize("seed", range(3))
def test_flat_solids_lie_on_their_faces(seed):
    p = made("box", seed)
    faces = [np.isclose(p[:, axis], edge) for axis in range(3) for edge in (p[:, axis].min(), p[:, axis].max())]
    assert np.all(np.any(faces, axis=0))
    assert all(face.sum() > 10 for face in faces)
    p = made("pyramid", seed)
    floor = np.isclose(p[:, 1], 0)
    apex = p[:, 1].max()
    width, depth = p[floor][:, 0].max(), p[floor][:, 2].max()
    x, z = np.abs(2 * p[:, 0] / width - 1), np.abs(2 * p[:, 2] / depth - 1)
    walls = ~floor
    # On a wall the larger of the two shares falls to 0 as the height grows to the apex, linearly.
    fitted = np.maximum(x, z)[walls] + p[walls, 1] / apex
    assert np.abs(fitted - 1).max() < 0.15
    p = made("hexagon", seed)
    ends = np.isclose(p[:, 1], 0) | np.isclose(p[:, 1], p[:, 1].max())
    normals = np.pi / 6 + np.arange(6) * np.pi / 3
    out = (p[~ends][:, [0, 2]] @ np.stack([np.cos(normals), np.sin(normals)])).max(1)
    assert np.allclose(out, np.sqrt(3) / 2)  # every wall is as far from the axis
    p = made("prism", seed)
    ends = np.isclose(p[:, 1], 0) | np.isclose(p[:, 1], p[:, 1].max())
    back = np.isclose(p[:, 2], 0)
    assert 0 < ends.mean() < 1
    assert 0 < back.mean() < 1


def test_a_profile_is_drawn_evenly_by_area():
    # A disc of radius 2 about a wall of height 1: areas 4 pi and 4 pi. Half of the disc lies within sqrt(2).
    generator = np.random.default_rng(0)
    drawn = np.concatenate([revolve(np.array([(0, 0), (2, 0), (2, 1)]), generator) for _ in range(20)])
    disc = drawn[np.isclose(drawn[:, 1], 0)]
    assert len(disc) / len(drawn) == pytest.approx(0.5, abs=0.02)
    assert (radius(disc) < np.sqrt(2)).mean() == pytest.approx(0.5, abs=0.02)
    wall = drawn[drawn[:, 1] > 1e-9]
    assert wall[:, 1].mean() == pytest.approx(0.5, abs=0.02)
    assert np.abs(drawn[:, [0, 2]].mean(0)).max() < 0.05


def test_a_sphere_is_drawn_evenly():
    # Archimedes: slices of equal height have equal area.
    generator = np.random.default_rng(0)
    height = np.concatenate([revolve(arc(1, 1, (0, 0), -1, 1), generator) for _ in range(20)])[:, 1]
    assert np.histogram(height, bins=4, range=(-1, 1))[0] / len(height) == pytest.approx([0.25] * 4, abs=0.02)


def test_facets_by_hand():
    # Two triangles in the plane, of areas 1/2 and 3/2.
    corners = np.array([(0.0, 0, 0), (1, 0, 0), (0, 1, 0), (3, 0, 5), (3, 3, 5), (4, 0, 5)])
    drawn = facets(corners, np.array([(0, 1, 2), (3, 4, 5)]), np.random.default_rng(0))
    first = drawn[drawn[:, 2] == 0]
    assert len(first) / len(drawn) == pytest.approx(0.25, abs=0.05)
    assert np.all(first[:, :2] >= 0)
    assert np.all(first[:, 0] + first[:, 1] <= 1 + 1e-12)
    assert first[:, :2].mean(0) == pytest.approx([1 / 3, 1 / 3], abs=0.05)


def test_a_standing_base_is_closed():
    for sides in (3, 4, 5):
        angle = np.arange(sides) * 2 * np.pi / sides
        corners, triangles = standing(np.stack([np.cos(angle), np.sin(angle)], 1), np.random.default_rng(0))
        edges = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        assert set(np.unique(edges, axis=0, return_counts=True)[1]) == {2}  # every edge has two faces
        assert len(corners) - len(np.unique(edges, axis=0)) + len(triangles) == 2  # Euler


def test_placed():
    points = np.array([(0.0, 5, 0), (0, 9, 0), (1, 7, 0)])
    out = placed(points, np.random.default_rng(0))
    assert out.max(0) + out.min(0) == pytest.approx([0, 0, 0], abs=1e-12)
    assert np.ptp(out, axis=0).max() == pytest.approx(2)
    assert out[:, 1] == pytest.approx([-1, 1, 0])
    assert np.hypot(*(out[2] - out[0])[[0, 2]]) == pytest.approx(0.5)  # turned about the up axis alone


def test_solids_are_the_same_each_time_and_differ_by_seed():
    few, labels = solids(24, 7)
    assert (few.shape, few.dtype) == ((24, 1024, 3), np.float32)
    assert labels.tolist() == [*range(12)] * 2
    solids.cache_clear()
    more, _ = solids(30, 7)
    assert np.array_equal(more[:24], few)
    other, _ = solids(24, 8)
    assert np.abs(other - few).max() > 0.1
    assert np.abs(few[:12] - few[12:]).mean((1, 2)).min() > 0.05


def test_the_stream():
    stream = open_stream(Data(dataset="embedded_clouds", domains=("clean", "lidar"), images=30, batch=20))
    assert stream.classes == tuple(SOLIDS)
    assert [tuple(batch.x.shape) for batch in stream] == [(20, 1024, 3), (10, 1024, 3), (20, 768, 3), (10, 768, 3)]
