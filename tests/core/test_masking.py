"""What is masked, and the loss of a reconstruction by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ctta.base.randomness import Randomness
from ctta.core.masking import MaskedAutoencoder, hide, patches, random_patches


def random(seed=0):
    return Randomness(seed, 0, torch.device("cpu"))


def test_patches_go_row_by_row():
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert patches(x, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]


def test_random_patches_are_different_ones():
    found = random_patches(50, 16, 0.25, random())
    assert found.shape == (50, 4)
    assert all(len(set(row)) == 4 for row in found.tolist())
    assert len({tuple(sorted(row)) for row in found.tolist()}) > 30
    assert random_patches(2, 16, 0.0, random()).shape == (2, 1)


class Zeros(nn.Module):
    """Reconstructs every pixel as 0."""

    def forward(self, tokens, keep):
        return torch.zeros(len(keep), 4, 4)


class Nothing(nn.Module):
    def forward(self, x, keep):
        return x.new_zeros(len(x), 1, 1)


def test_the_loss_is_that_of_hidden_patches_each_normalised():
    # Variance 5/3 over 4 pixels; normalised squares sum to 3, so the mean square is 3/4 in each patch but the flat one.
    x = torch.tensor([[0.0, 1, 5, 5], [2, 3, 5, 5], [0, 2, 0, 3], [4, 6, 6, 9]]).view(1, 1, 4, 4)
    model = MaskedAutoencoder(Nothing(), Zeros(), nn.Identity(), 2)
    assert model.reconstruction_loss(x, torch.tensor([[1]])).item() == pytest.approx(0.75, abs=1e-5)
    assert model.reconstruction_loss(x, torch.tensor([[0]])).item() == pytest.approx(0.5, abs=1e-5)


def test_hidden_parts_take_the_mean_of_what_is_left():
    x = torch.rand(3, 2, 8, 8)
    found = hide(x, 4, 0.5, random())
    for image, part in zip(x, found, strict=True):
        same = (image == part).all(0)
        assert same.sum() == 32  # two of four patches
        assert torch.allclose(part[:, ~same], image[:, same].mean(1, keepdim=True).expand(-1, 32))
    cloud = torch.rand(2, 20, 3)
    found = hide(cloud, 4, 0.25, random())
    assert ((cloud == found).all(2).sum(1) == 5).all()
    assert hide(torch.rand(1, 3, 7, 9), 4, 0.25, random()).shape == (1, 3, 7, 9)
