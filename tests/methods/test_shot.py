"""SHOT's equations with numbers worked by hand, and the whole against plain torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ctta import SHOT, ModelError
from ctta.methods.shot import confident_loss, mean_entropy
from ctta.testing.networks import make_batch
from plain import make_decisive, with_batch_statistics


def test_confident_loss_counts_confident_samples_only():
    p = torch.tensor([[0.95, 0.05], [0.08, 0.92], [0.6, 0.4]])
    expected = -(math.log(0.95) + math.log(0.92)) / 2
    assert confident_loss(p.log(), 0.9).item() == pytest.approx(expected, rel=1e-5)
    assert confident_loss(p.log(), 0.99).item() == 0  # no sample is so confident


def test_mean_entropy_of_opposite_predictions_is_that_of_a_coin():
    sure = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    assert mean_entropy(sure).item() == pytest.approx(math.log(2), abs=1e-4)
    assert mean_entropy(sure[:1]).item() == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("threshold", [0.9, 1.0])
def test_against_plain_torch(threshold):
    network = make_decisive().double()
    reference = with_batch_statistics(network)
    learned = [p for name, p in reference.named_parameters() if not name.startswith("head")]
    optimizer = torch.optim.SGD(learned, 1e-2, 0.9, nesterov=True)
    adapter = SHOT(network, preset="cifar10", lr=1e-2, threshold=threshold)
    confident = []
    for x in [make_batch("image_bn", 8, seed).double() for seed in range(10)]:
        z = reference(x)
        p = z.softmax(1)
        sure = p.amax(1) > threshold
        confident.append(sure.sum().item())
        loss = -(p * p.log()).sum(1).mean() + (p.mean(0) * (p.mean(0) + 1e-5).log()).sum()
        if sure.any():
            loss = loss + 0.3 * nn.functional.cross_entropy(z[sure], z[sure].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, z.detach(), atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-9, rtol=1e-9)
        assert step.samples["selected"].tolist() == sure.tolist()
    assert all(0 < count < 8 for count in confident) if threshold == 0.9 else not any(confident)
    torch.testing.assert_close(adapter.model.conv1.weight, reference.conv1.weight, atol=1e-9, rtol=1e-9)
    assert torch.equal(adapter.model.head.weight, network.head.weight)


def test_a_head_alone_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(ModelError, match="only a head"):
        SHOT(model)
