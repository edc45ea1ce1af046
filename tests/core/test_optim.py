"""The optimiser: what it can train, and that it moves with the weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ctta import DSS, TENT, ModelError, Source
from ctta.core import optim
from ctta.core.settings import OptimizerSettings
from ctta.testing.networks import make_batch, make_network

X = make_batch("image_bn", 4, 0)


@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_to_moves_the_optimiser_too(preset):
    adapter = TENT(make_network("image_bn"), preset=preset)
    adapter(X)
    adapter.double()
    states = [value for slots in adapter.optimizer.state.values() for key, value in slots.items() if key != "step"]
    assert states
    assert all(value.dtype == torch.float64 for value in states)
    assert adapter(X.double()).dtype == torch.float64
    adapter.reset()
    assert adapter(X.double()).dtype == torch.float64


def test_weights_too_coarse_to_learn_are_refused():
    with pytest.raises(ModelError, match="too coarse"):
        TENT(make_network("image_bn").bfloat16())
    assert Source(make_network("image_bn").bfloat16())(X.bfloat16()).isfinite().all()


def test_nothing_to_learn():
    plain = nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(768, 5))
    with pytest.raises(ModelError, match="nothing to learn"):
        TENT(plain)
    adapter = TENT(make_network("image_bn"))
    adapter.requires_grad_(False)
    with pytest.raises(ModelError, match="no gradient"):
        adapter(X)


def test_whole_number_parameters_ride_along():
    network = make_network("image_bn")
    network.order = nn.Parameter(torch.arange(3), requires_grad=False)
    network.scale = nn.Parameter(torch.tensor(2.0))
    adapter = DSS(network, views=1, restore=0.9)
    adapter(X)
    assert torch.equal(adapter.teacher.order, torch.arange(3))


@pytest.mark.parametrize("share", [0.25, torch.tensor(0.25), torch.tensor(0.25, dtype=torch.float64)], ids=str)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_step_at_a_share_of_the_rate(optimizer, share):
    weights = [nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    for weight, lr, part in zip(weights, (0.1, 0.025), (share, 1.0), strict=True):
        made = optim.make_optimizer([weight], OptimizerSettings(optimizer=optimizer, lr=lr), "test")
        for scale in (1.0, 3.0):
            optim.differentiate(made, (scale * weight**3).sum())
            optim.descend(made, torch.tensor(False), part)
        assert made.param_groups[0]["lr"] == lr
    assert not torch.equal(weights[0], torch.tensor([1.0, -2.0]))
    torch.testing.assert_close(weights[0], weights[1])


def test_small_batches_are_paced():
    assert [optim.pace(samples) for samples in (1, 16, 64, 200)] == [1 / 64, 0.25, 1.0, 1.0]
