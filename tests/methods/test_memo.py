"""MEMO: its loss by hand, and images against plain torch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from ctta import MEMO
from ctta.methods.memo import marginal_entropy
from ctta.testing.networks import make_batch, make_network


def shades(x, random):
    """Views without randomness: darker from copy to copy."""
    return x * torch.linspace(1, 0.5, len(x), dtype=x.dtype).view(-1, 1, 1, 1)


def test_marginal_entropy_by_hand():
    # Two views, (0.9, 0.1) and (0.3, 0.7): their mean is (0.6, 0.4).
    logits = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64).log()
    assert marginal_entropy(logits).item() == pytest.approx(-0.6 * math.log(0.6) - 0.4 * math.log(0.4))
    saturated = torch.tensor([[1000.0, 0.0], [1000.0, 0.0]])
    assert marginal_entropy(saturated).isfinite()


def test_against_plain_torch():
    """Every image starts at the source, takes one plain step, and is answered for after it."""
    network = make_network("image_gn").double()
    adapter = MEMO(network, MEMO.config_type(optimizer="sgd", lr=0.005, views=6), views=shades)
    for x in [make_batch("image_gn", 2, seed).double() for seed in range(10)]:
        expected = []
        for image in x:
            model = copy.deepcopy(network).eval()
            p = model(shades(image.expand(6, -1, -1, -1), None)).softmax(1).mean(0)
            gradients = torch.autograd.grad(-(p * p.log()).sum(), list(model.parameters()))
            with torch.no_grad():
                for weight, gradient in zip(model.parameters(), gradients, strict=True):
                    weight -= 0.005 * gradient
                expected.append(model(image[None])[0])
        torch.testing.assert_close(adapter(x), torch.stack(expected), atol=1e-10, rtol=1e-10)
        assert all(torch.equal(a, b) for a, b in zip(adapter.model.parameters(), network.parameters(), strict=True))


def test_batch_norm_against_plain_torch():
    """The layers' own statistics are set to 16/17 source + 1/17 views, unbiased, before the pass to learn from."""
    network, weight = make_network("image_bn").double(), 1 / 17
    adapter = MEMO(network, MEMO.config_type(optimizer="sgd", lr=0.05, views=6), views=shades)

    def mixed(model, x):
        for layer in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
            layer.register_forward_pre_hook(set_statistics)
        return model(x)

    def set_statistics(layer, args):
        x = args[0].detach()
        source = sources[layer]
        layer.running_mean = (1 - weight) * source[0] + weight * x.mean((0, 2, 3))
        layer.running_var = (1 - weight) * source[1] + weight * x.var((0, 2, 3), correction=1)

    for image in torch.cat([make_batch("image_bn", 4, seed).double() for seed in range(3)]):
        model = copy.deepcopy(network).eval()
        layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        sources = {layer: (layer.running_mean.clone(), layer.running_var.clone()) for layer in layers}
        p = mixed(model, shades(image.expand(6, -1, -1, -1), None)).softmax(1).mean(0)
        gradients = torch.autograd.grad(-(p * p.log()).sum(), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.05 * gradient
            expected = model(image[None])
        torch.testing.assert_close(adapter(image[None]), expected, atol=1e-10, rtol=1e-10)


def test_images_of_a_batch_do_not_meet():
    x = make_batch("image_bn", 4, 0)
    adapter = MEMO(make_network("image_bn"), preset="cifar10", views=shades, lr=0.05)
    together = adapter(x)
    torch.testing.assert_close(torch.cat([adapter(one) for one in x.split(1)]), together, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together, adapter.predict(x), atol=1e-3)
