"""Quarter turns and the head that tells them."""

from __future__ import annotations

import math

import pytest
import torch

from ctta import InputError
from ctta.core.rotation import RotationHead, quarter_turns


def test_images_turn_in_their_plane():
    x = torch.arange(4.0).view(1, 1, 2, 2)  # 0 1 / 2 3
    found = quarter_turns(x)[:, 0].flatten(1).tolist()
    assert found == [[0, 1, 2, 3], [1, 3, 0, 2], [3, 2, 1, 0], [2, 0, 3, 1]]


def test_clouds_turn_about_the_y_axis():
    found = quarter_turns(torch.tensor([[[1.0, 5.0, 2.0]]]))[:, 0].tolist()
    assert found == [[1, 5, 2], [2, 5, -1], [-1, 5, -2], [-2, 5, 1]]


def test_the_order_is_turn_by_turn():
    x = torch.rand(3, 2, 4, 4)
    assert torch.equal(quarter_turns(x)[3:6], x.rot90(1, (2, 3)))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 7), (2, 9, 4)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="square images"):
        quarter_turns(torch.rand(shape))


def test_the_loss_by_hand():
    head = RotationHead(1)
    with torch.no_grad():
        head.bias.copy_(torch.tensor([math.log(3), 0.0, 0.0, 0.0]))
    # Each turn once: probability 1/2 for the first, 1/6 for the others.
    assert head.loss(torch.zeros(4, 1)).item() == pytest.approx((math.log(2) + 3 * math.log(6)) / 4)
