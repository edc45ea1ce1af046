"""The pooled layer against layer, norm and maximum one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ctta.core.statistics import grouped_statistics
from ctta.models.pooling import normalize_moments, pool, pooled_layer, slope_sign


def layer(bias: bool = True) -> tuple[nn.Conv1d, nn.BatchNorm1d]:
    """In double precision; slopes of both signs, statistics that are no batch's."""
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        conv, norm = nn.Conv1d(5, 7, 1, bias=bias).double(), nn.BatchNorm1d(7).double()
    with torch.no_grad():
        norm.weight.copy_(torch.randn(7, generator=generator))
        norm.bias.copy_(torch.randn(7, generator=generator))
        norm.running_mean.copy_(torch.randn(7, generator=generator))
        norm.running_var.copy_(torch.rand(7, generator=generator) + 0.5)
    assert {1.0, -1.0} == set(slope_sign(norm).tolist())
    return conv, norm


def inputs(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(6, 5, 32, generator=generator, dtype=torch.float64) * 2 + 3).requires_grad_()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_values_gradients_and_statistics_are_those_of_the_plain_layer(training: bool, bias: bool) -> None:
    results = []
    weights = torch.linspace(-1, 2, 42, dtype=torch.float64).view(6, 7)
    for pooled in (True, False):
        conv, norm = (part.train(training) for part in layer(bias))
        x = inputs()
        out = pooled_layer(x, conv, norm) if pooled else pool(norm(conv(x)))
        (out * weights).sum().backward()
        gradients = [value.grad for value in (x, *conv.parameters(), *norm.parameters())]
        results.append([out.detach(), *gradients, norm.running_mean, norm.running_var])
    assert results[1][1].abs().max() > 0.1
    for found, expected in zip(*(result[:-1] for result in results), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    # Of 6 clouds, n / (n - 1) has n = 192 in both.
    torch.testing.assert_close(results[0][-1], results[1][-1], rtol=1e-8, atol=0)


def test_without_gradient_the_same() -> None:
    conv, norm = layer()
    with torch.no_grad():
        torch.testing.assert_close(pooled_layer(inputs(), conv, norm), pool(norm(conv(inputs()))))


def test_groups_have_statistics_of_their_own() -> None:
    conv, norm = layer()
    with torch.no_grad(), grouped_statistics(norm, 3):
        found = pooled_layer(inputs(), conv, norm)
        expected = pool(norm(conv(inputs())))
    torch.testing.assert_close(found, expected)
    assert (found - pooled_layer(inputs(), conv, norm)).abs().max() > 0.1


def test_moments_by_hand() -> None:
    # Clouds with means 1 and 5 and deviations 1 and 3: mean 3, variance (1 + 9) / 2 + 4 = 9. Less 3, over 3, times 6.
    norm = nn.BatchNorm1d(1, eps=1e-12)
    nn.init.constant_(norm.weight, 6)
    middle, half = normalize_moments(norm, torch.tensor([[1.0], [5.0]]), torch.tensor([[1.0], [3.0]]))
    torch.testing.assert_close(middle.flatten(), torch.tensor([-4.0, 4.0]))
    torch.testing.assert_close(half.flatten(), torch.tensor([2.0, 6.0]))


def test_pool_is_the_maximum_and_passes_its_gradient_on() -> None:
    x = torch.tensor([[[1.0, 3.0, 2.0], [-1.0, -5.0, -2.0]]])
    assert pool(x).tolist() == [[3.0, -1.0]]
    x.requires_grad_()
    pool(x).sum().backward()
    assert x.grad.tolist() == [[[0, 1, 0], [1, 0, 0]]]
