"""Cloud views: rigid motions, worked by hand and by their laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ctta.base.errors import ConfigError
from ctta.base.randomness import Randomness
from ctta.core.views import CloudViews, Draw
from ctta.core.views.clouds import ROTATION, TRANSLATION, rotation

CPU = torch.device("cpu")
DRAWS: list[Draw] = ["batch", "sample"]
RIGHT = math.pi / 2


def cloud(count: int = 4, points: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.rand(count, points, 3, dtype=torch.float64, generator=generator) - 1


def motion(x: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix (3, 3) and offset (3,) that made the view of one cloud (P, 3), by least squares."""
    columns = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    solution = torch.linalg.lstsq(columns, view).solution
    torch.testing.assert_close(columns @ solution, view, rtol=0, atol=1e-9)  # affine, nothing else
    return solution[:3], solution[3]


def angles_of(matrix: Tensor) -> list[float]:
    """Degrees about x, y and z of a row-vector matrix Rx Ry Rz, for angles below a right one."""
    m = matrix.tolist()
    return [math.degrees(a) for a in (math.atan2(m[1][2], m[2][2]), math.asin(-m[0][2]), math.atan2(m[0][1], m[0][0]))]


def motions(draw: Draw, count: int, batch: int = 0) -> list[tuple[Tensor, Tensor]]:
    x = cloud(1, 8).expand(count, -1, -1)
    view = CloudViews(draw)(x, Randomness(0, batch, CPU))
    return [motion(one, other) for one, other in zip(x, view, strict=True)]


@pytest.mark.parametrize(
    ("angles", "images"),
    [
        # Where the x, y and z unit vectors go, right-handed.
        ((0, 0, 0), [(1, 0, 0), (0, 1, 0), (0, 0, 1)]),
        ((RIGHT, 0, 0), [(1, 0, 0), (0, 0, 1), (0, -1, 0)]),
        ((0, RIGHT, 0), [(0, 0, -1), (0, 1, 0), (1, 0, 0)]),
        ((0, 0, RIGHT), [(0, 1, 0), (-1, 0, 0), (0, 0, 1)]),
        # About x, then y: y goes to z, then to x.
        ((RIGHT, RIGHT, 0), [(0, 0, -1), (1, 0, 0), (0, -1, 0)]),
        # About y, then z: z goes to x, then to y.
        ((0, RIGHT, RIGHT), [(0, 0, -1), (-1, 0, 0), (0, 1, 0)]),
    ],
)
def test_right_angles_by_hand(angles: tuple[float, ...], images: list[tuple[float, ...]]) -> None:
    matrix = rotation(torch.tensor([angles], dtype=torch.float64))[0]
    torch.testing.assert_close(matrix, torch.tensor(images, dtype=torch.float64), rtol=0, atol=1e-12)


def test_rotations_are_proper_and_one_a_row() -> None:
    angles = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    matrices = rotation(angles)
    eye = torch.eye(3, dtype=torch.float64).expand(50, 3, 3)
    torch.testing.assert_close(matrices @ matrices.mT, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(matrices), torch.ones(50, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(matrices[7:8], rotation(angles[7:8]), rtol=0, atol=0)


@pytest.mark.parametrize("draw", DRAWS)
def test_distances_and_handedness_stay(draw: Draw) -> None:
    x = cloud()
    view = CloudViews(draw)(x, Randomness(0, 0, CPU))
    torch.testing.assert_close(torch.cdist(view, view), torch.cdist(x, x), rtol=0, atol=1e-7)
    for one, other in zip(x, view, strict=True):
        matrix, _ = motion(one, other)
        assert torch.linalg.det(matrix).item() == pytest.approx(1.0, abs=1e-9)
        assert (matrix - torch.eye(3, dtype=torch.float64)).abs().max() > 0.01


def test_angles_and_offsets_fill_their_ranges() -> None:
    drawn = motions("sample", 2000)
    angles = np.array([angles_of(matrix) for matrix, _ in drawn]) / ROTATION
    offsets = np.array([offset.tolist() for _, offset in drawn]) / TRANSLATION
    table = np.concatenate([angles, offsets], 1)
    assert np.abs(table).max() <= 1 + 1e-9
    for column in table.T:  # uniform on [-1, 1]: the Kolmogorov distance at the 1e-4 level
        levels = (np.arange(len(column)) + 0.5) / len(column)
        assert np.abs((np.sort(column) + 1) / 2 - levels).max() < 2.23 / math.sqrt(len(column)) + 0.5 / len(column)
    assert np.abs(np.corrcoef(table.T) - np.eye(6)).max() < 5 / math.sqrt(len(table))


def test_the_ranges_are_ten_degrees_and_a_tenth() -> None:
    assert ROTATION == 10.0
    assert TRANSLATION == 0.1


def test_a_batch_draw_is_shared_and_a_sample_draw_is_not() -> None:
    x = cloud(1).expand(5, -1, -1)
    shared = CloudViews("batch")(x, Randomness(0, 0, CPU))
    torch.testing.assert_close(shared, shared[:1].expand_as(shared), rtol=0, atol=1e-12)
    own = CloudViews("sample")(x, Randomness(0, 0, CPU))
    for one, other in itertools.combinations(own, 2):
        assert (one - other).abs().mean() > 0.01


@pytest.mark.parametrize("draw", DRAWS)
def test_a_view_is_a_function_of_seed_and_batch(draw: Draw) -> None:
    x = cloud()

    def view(seed: int, batch: int) -> Tensor:
        return CloudViews(draw)(x, Randomness(seed, batch, CPU))

    assert torch.equal(view(1, 2), view(1, 2))
    for seed, batch in ((1, 3), (2, 2), (2, 1)):
        assert (view(1, 2) - view(seed, batch)).abs().mean() > 0.005


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("draw", DRAWS)
def test_form_type_input_and_global_generator_stay(draw: Draw, dtype: torch.dtype) -> None:
    x = cloud().to(dtype)
    before, state = x.clone(), torch.get_rng_state()
    view = CloudViews(draw)(x, Randomness(0, 0, CPU))
    assert view.shape == x.shape
    assert view.dtype == dtype
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    double = CloudViews(draw)(x.double(), Randomness(0, 0, CPU))
    torch.testing.assert_close(view.double(), double, rtol=0, atol=1e-5)


def test_scale_fills_its_range_and_is_one_factor_a_cloud() -> None:
    x = cloud(1, 8).expand(2000, -1, -1)
    view = CloudViews("sample", rotation=0, translation=0, scale=0.2)(x, Randomness(0, 0, CPU))
    factors = view / x
    torch.testing.assert_close(factors, factors[:, :1, :1].expand_as(factors))
    drawn = ((factors[:, 0, 0] - 0.8) / 0.4).sort().values.numpy()
    assert drawn[0] >= 0
    assert drawn[-1] <= 1
    assert np.abs(drawn - (np.arange(2000) + 0.5) / 2000).max() < 2.23 / math.sqrt(2000)
    shared = CloudViews("batch", rotation=0, translation=0, scale=0.2)(x, Randomness(0, 0, CPU))
    assert (shared / x).std() < 1e-12


def test_scale_leaves_rotation_and_translation_as_they_are() -> None:
    x = cloud()
    plain = CloudViews("sample")(x, Randomness(0, 0, CPU))
    scaled = CloudViews("sample", scale=0.2)(x, Randomness(0, 0, CPU))
    for one, left, right in zip(x, plain, scaled, strict=True):
        (matrix, offset), (other, same) = motion(one, left), motion(one, right)
        factor = torch.linalg.det(other) ** (1 / 3)
        torch.testing.assert_close(other, factor * matrix)
        torch.testing.assert_close(offset, same)


def test_jitter_moves_each_point_by_three_deviations_at_most() -> None:
    x = cloud(20, 500)
    moved = CloudViews(rotation=0, translation=0, jitter=0.02)(x, Randomness(0, 0, CPU)) - x
    assert moved.std().item() == pytest.approx(0.02, rel=0.02)
    assert moved.abs().max() <= 0.06 + 1e-12
    assert (moved.abs() > 0.059).any()
    assert np.abs(np.corrcoef(moved.reshape(-1, 3).T) - np.eye(3)).max() < 0.05


def test_ranges_that_make_no_sense_are_refused_together() -> None:
    with pytest.raises(ConfigError, match=r"rotation is -1.*scale is 1"):
        CloudViews(rotation=-1, scale=1)
    with pytest.raises(ConfigError, match="jitter is nan"):
        CloudViews(jitter=math.nan)
