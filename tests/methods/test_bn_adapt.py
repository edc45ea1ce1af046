"""BN Adapt against batch statistics in plain torch."""

from __future__ import annotations

import copy

import pytest
import torch

from ctta import BNAdapt, Source
from ctta.testing.networks import make_batch, make_network, make_stream
from plain import with_batch_statistics


@pytest.mark.parametrize("kind", ["image_bn", "pointnet_bn"])
def test_it_uses_batch_statistics(kind):
    network = make_network(kind)
    reference, adapter = with_batch_statistics(network), BNAdapt(network, preset="paper")
    for x in make_stream(kind):
        with torch.no_grad():
            assert torch.equal(adapter(x), reference(x))


@pytest.mark.parametrize("kind", ["image_bn", "pointnet_bn"])
def test_alpha_mixes_source_and_batch_statistics(kind):
    network = make_network(kind)
    adapter = BNAdapt(network, batch_weight=0.3)
    for x in make_stream(kind):
        reference = copy.deepcopy(network).eval()
        for layer in (reference.bn1, reference.bn2):
            seen = {}
            layer.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(x=args[0]))
            with torch.no_grad():
                reference(x)
            dims = [d for d in range(seen["x"].dim()) if d != 1]
            layer.running_mean.mul_(0.7).add_(seen["x"].mean(dims), alpha=0.3)
            layer.running_var.mul_(0.7).add_(seen["x"].var(dims, correction=0), alpha=0.3)
        with torch.no_grad():
            torch.testing.assert_close(adapter(x), reference(x), atol=1e-5, rtol=1e-5)


def test_alpha_zero_is_the_source_and_alpha_one_the_batch():
    network, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    torch.testing.assert_close(BNAdapt(network, batch_weight=0.0)(x), Source(network)(x), atol=1e-5, rtol=1e-5)
    assert torch.equal(BNAdapt(network, batch_weight=1.0)(x), BNAdapt(network, statistics="batch")(x))


@pytest.mark.parametrize(("kind", "warned"), [("image_bn", False), ("image_gn", True)])
def test_a_model_without_batch_norm_is_reported(kind, warned, caplog):
    with caplog.at_level("WARNING", "ctta"):
        BNAdapt(make_network(kind))(make_batch(kind, 4, 0))
    assert ("has no BatchNorm layer" in caplog.text) == warned
