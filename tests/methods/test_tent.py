"""TENT against plain torch."""

from __future__ import annotations

import pytest
import torch

from ctta import TENT
from ctta.testing.networks import make_batch, make_network
from plain import norm_weights, with_batch_statistics


@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_ten_batches_against_plain_torch(preset):
    network = make_network("image_bn")
    reference = with_batch_statistics(network)
    learned = norm_weights(reference)
    optimizer = (
        torch.optim.Adam(learned, 1e-3) if preset == "cifar10" else torch.optim.SGD(learned, 2.5e-4, 0.9, nesterov=True)
    )
    adapter = TENT(network, preset=preset)
    for x in [make_batch("image_bn", 8, seed) for seed in range(10)]:
        logits = reference(x)
        p = logits.softmax(1)
        optimizer.zero_grad()
        (-(p * p.log()).sum(1).mean()).backward()
        optimizer.step()
        torch.testing.assert_close(adapter(x), logits.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(adapter.model.bn2.weight, reference.bn2.weight, atol=1e-6, rtol=1e-5)
    assert not torch.equal(adapter.model.bn2.weight, network.bn2.weight)
    assert torch.equal(adapter.model.conv1.weight, network.conv1.weight)
