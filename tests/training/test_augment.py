"""Augmentation: each piece by hand, and that draws are a sample's own and follow the seed."""

from __future__ import annotations

import math

import pytest
import torch

from ctta import InputError
from ctta.base.randomness import Randomness
from ctta.training.augment import JITTER_LIMIT, MOVE, PAD, SCALE, augment, draw_points, part, shift


def random(seed=0):
    return Randomness(seed, 0, torch.device("cpu"))


def test_shift_by_hand():
    x = torch.arange(2 * 3 * 5 * 6.0).view(2, 3, 5, 6)
    moved = shift(x, torch.tensor([[PAD, PAD], [PAD + 1, PAD - 2]]))
    assert torch.equal(moved[0], x[0])
    assert torch.equal(moved[1, :, :4, 2:], x[1, :, 1:, :4]), "up by one, right by two"
    assert not moved[1, :, 4].any()
    assert not moved[1, :, :, :2].any()


def test_part_by_hand():
    """The left half of a ramp, drawn out to the whole width: half as steep."""
    ramp = (torch.arange(8.0) + 0.5).expand(1, 1, 4, 8)
    half = part(ramp, torch.tensor([[0.5, 1.0]]), torch.tensor([[-0.5, 0.0]]))
    expected = torch.tensor([0.5, 0.75, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75])  # the first would be 0.25, off the border
    assert torch.allclose(half[0, 0, 2], expected)


@pytest.mark.parametrize("size", [32, 80])
def test_images_keep_shape_and_range_and_differ_from_each_other(size):
    x = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)).expand(16, -1, -1, -1)
    made = augment(x, random())
    assert made.shape == x.shape
    assert 0 <= made.min() <= made.max() <= 1
    assert len({tuple(image.flatten()[:50].tolist()) for image in made}) > 8
    assert torch.equal(made, augment(x, random()))
    assert not torch.equal(made, augment(x, random(1)))


def test_small_images_move_four_pixels_at_most_and_are_mirrored_half_the_time():
    x = torch.zeros(400, 3, 32, 32)
    x[:, :, 16, 10] = 1
    where = augment(x, random())[:, 0].flatten(1).argmax(1)
    rows, columns = where // 32, where % 32
    assert set(rows.tolist()) == set(range(12, 21))
    assert set(columns.tolist()) == {*range(6, 15), *range(17, 26)}
    assert 150 < (columns < 16).sum() < 250
    assert max((augment(x, random(), flip=False)[:, 0].flatten(1).argmax(1) % 32).tolist()) == 14


def test_large_images_show_parts_of_all_sizes():
    """On a ramp from 0 to 1, what is seen says how wide the part is."""
    ramp = torch.linspace(0, 1, 100).expand(500, 3, 100, 100)
    seen = augment(ramp, random(), flip=False)[:, 0, 50]
    width = seen[:, -1] - seen[:, 0]
    assert width.min() < math.sqrt(0.08 * 4 / 3) + 0.1
    assert width.max() > 0.97


def test_clouds_turn_about_the_up_axis_and_move_a_little():
    cloud = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).repeat(300, 1, 1)
    side, top, origin = augment(cloud, random()).unbind(1)
    slack = 2 * JITTER_LIMIT
    assert (origin.abs() <= MOVE + JITTER_LIMIT).all()
    up = top - origin
    assert (up[:, [0, 2]].abs() <= slack).all(), "what points up goes on pointing up"
    assert up[:, 1].min() >= SCALE[0] - slack
    assert up[:, 1].max() <= SCALE[1] + slack
    flat = side - origin
    assert (flat[:, 1].abs() <= slack).all()
    angle = torch.atan2(flat[:, 2], flat[:, 0])
    assert angle.min() < -3
    assert angle.max() > 3
    assert torch.allclose(flat.norm(dim=1), up.norm(dim=1), atol=2 * slack)


def test_points_are_drawn_without_replacement():
    x = torch.arange(2 * 6 * 3.0).view(2, 6, 3)
    drawn = draw_points(x, 4, random(1))
    for cloud, points in zip(x.tolist(), drawn.tolist(), strict=True):
        assert len({tuple(point) for point in points}) == 4
        assert all(point in cloud for point in points)
    assert not torch.equal(drawn, draw_points(x, 4, random(2)))
    assert draw_points(x, 9, random(1)).shape == (2, 6, 3)
    with pytest.raises(InputError, match="point clouds"):
        draw_points(torch.zeros(2, 3, 4, 4), 4, random(1))
