"""Norm layers of every kind, the number of classes, copies that share weights, values copied and averaged."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ctta import InputError, Normalized
from ctta.core import networks as layers
from ctta.testing.networks import make_batch, make_network

X = make_batch("image_bn", 8, 0)


def test_norm_layers_of_every_kind_are_found():
    kinds = [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.LayerNorm(4),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm1d(4, affine=True),
        nn.InstanceNorm2d(4, affine=True),
        nn.RMSNorm(4),
    ]
    module = nn.Sequential(nn.Linear(4, 4), *kinds)
    assert layers.norm_layers(module) == kinds
    assert len(layers.norm_parameters(module)) == 2 * 8 + 1
    assert layers.norm_parameters(nn.InstanceNorm2d(4)) == []  # not affine: nothing to learn


def test_normalized_puts_normalisation_inside():
    model = Normalized(nn.Identity(), (0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
    x = torch.full((1, 3, 2, 2), 0.6)
    torch.testing.assert_close(model(x)[0, :, 0, 0], torch.tensor([1.0, 1.0, 1.0]))
    assert {"mean", "std"} <= set(model.state_dict())


def test_normalized_is_not_for_clouds():
    model = Normalized(nn.Flatten(), mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    with pytest.raises(InputError, match=r"images \(N, C, H, W\).*shape \(2, 3, 3\).*without mean and std"):
        model(torch.zeros(2, 3, 3))


def test_class_count():
    assert layers.class_count(make_network("vit_ln")) == 5
    assert layers.class_count(nn.Sequential(nn.Conv2d(3, 7, 1), nn.Flatten())) == 7
    assert layers.class_count(nn.Flatten()) is None


def test_move_is_a_weighted_mean_on_the_device():
    weights, targets = [torch.tensor([1.0, 3.0]), torch.tensor([7])], [torch.tensor([5.0, 3.0]), torch.tensor([9])]
    layers.interpolate(weights, targets, torch.tensor(0.25))
    assert [weight.tolist() for weight in weights] == [[2.0, 3.0], [7]]  # whole numbers are no weights


def test_a_shared_weight_copy_has_the_same_tensors_and_modules_of_its_own():
    network = make_network("image_bn")
    other = layers.shared_weight_copy(network)
    mine, theirs = list(network.modules()), list(other.modules())
    assert len(mine) == len(theirs)
    assert not {id(module) for module in mine} & {id(module) for module in theirs}
    assert all(one is two for one, two in zip(network.parameters(), other.parameters(), strict=True))
    assert all(one is two for one, two in zip(network.buffers(), other.buffers(), strict=True))
