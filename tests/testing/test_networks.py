"""The small networks: reproducible, of the kinds they are named after, with a source of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ctta.testing.networks import CLASSES, NETWORKS, make_batch, make_network, make_stream

NORMS = {"image_bn": nn.BatchNorm2d, "image_gn": nn.GroupNorm, "vit_ln": nn.LayerNorm, "pointnet_bn": nn.BatchNorm1d}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_is_reproducible_and_classifies(kind):
    before = torch.get_rng_state()
    network = make_network(kind)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    for mine, other in zip(network.state_dict().values(), make_network(kind).state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert all(module.training for module in network.modules())
    assert any(isinstance(module, NORMS[kind]) for module in network.modules())
    assert network(make_batch(kind, 4, seed=0)).shape == (4, CLASSES)


@pytest.mark.parametrize("kind", ["image_bn", "pointnet_bn"])
def test_source_statistics_differ_from_those_of_any_batch(kind):
    network = make_network(kind)
    seen = []
    network.bn2.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    for x in make_stream(kind):
        network.eval()(x)
        mean = seen.pop().transpose(0, 1).flatten(1).mean(1)
        assert not torch.allclose(network.bn2.running_mean, mean, atol=0.01)


def test_a_stream_drifts_and_ends_with_a_smaller_batch():
    stream = make_stream("image_bn", 4)
    assert [len(x) for x in stream] == [8, 8, 8, 5]
    brightness = [x.mean().item() for x in stream]
    assert brightness == sorted(brightness, reverse=True)
    assert all(0 <= x.min() <= x.max() <= 1 for x in stream)
