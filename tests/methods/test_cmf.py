"""CMF: the filter by hand, and ten batches against plain torch."""

from __future__ import annotations

import pytest
import torch

from ctta import CMF, ROID
from ctta.methods.cmf import filter_weight
from ctta.testing.networks import make_batch, make_network
from plain import identity_views, norm_weights, roid_batch, with_batch_statistics


def test_the_weight_of_the_filter_by_hand():
    # q = 0.2: r = 0.8. v = 0.05: 0.8 / 0.85. v = 0.2: 0.8 is below the least. v = 1e-5: above 0.9999, so 1.
    found = filter_weight(torch.tensor([0.05, 0.2, 1e-5], dtype=torch.float64), 0.2)
    assert found.tolist() == pytest.approx([0.8 / 0.85, 0.89, 1.0])


def test_many_parameters_do_not_turn_the_filter_round():
    assert filter_weight(torch.tensor(1.0), 1.0) == pytest.approx(0.89)


@pytest.mark.parametrize("noise", [0.005, 4.0, 90.0])
def test_against_plain_torch(noise):
    """Weights and variance as in public code, written plainly, in double precision."""
    network = make_network("image_bn").double()
    model = with_batch_statistics(network)
    learned, source = norm_weights(model), [p.detach().clone() for p in norm_weights(model)]
    hidden, variance, mean = [p.clone() for p in source], 0.0, torch.full((5,), 0.2).double()
    q = noise * 32 / 38400
    optimizer = torch.optim.Adam(learned, 1e-3)
    adapter = CMF(network, preset="cifar10", views=identity_views, noise=noise)
    for x in [make_batch("image_bn", 12, seed).double() for seed in range(10)]:
        loss, expected, _, mean = roid_batch(model, x, mean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            variance = 0.99**2 * variance + q
            beta = max((1 - q) / (variance + 1 - q), 0.89)
            beta = beta if beta < 0.9999 else 1.0
            variance = beta * variance
            for h, own, start in zip(hidden, learned, source, strict=True):
                h.copy_(beta * (0.99 * h + 0.01 * start) + (1 - beta) * own)
                own.copy_(0.99 * own + 0.01 * h)
        torch.testing.assert_close(adapter(x), expected, atol=1e-8, rtol=1e-8)
    assert adapter.variance.item() == pytest.approx(variance)
    torch.testing.assert_close(norm_weights(adapter.hidden), hidden, atol=1e-9, rtol=1e-9)


def test_without_noise_it_is_roid():
    stream = [make_batch("image_bn", 12, seed) for seed in range(4)]
    still, roid = CMF(make_network("image_bn"), lr=0.02, noise=0.0), ROID(make_network("image_bn"), lr=0.02)
    assert all(torch.allclose(still(x), roid(x), atol=1e-6) for x in stream)


def test_a_return_to_the_source_is_a_new_start():
    stream = [make_batch("image_bn", 12, seed) for seed in range(4)]
    used, new = CMF(make_network("image_bn"), lr=0.02), CMF(make_network("image_bn"), lr=0.02)
    used(stream[0])
    assert used.variance > 0
    used.restore_source()
    assert used.variance == 0
    assert torch.equal(used(stream[1]), new(stream[1]))
