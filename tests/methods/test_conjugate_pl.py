"""Conjugate PL: the closed form against a linear solver, numbers by hand, and ten batches against plain torch."""

from __future__ import annotations

import pytest
import torch

from ctta import ConjugatePL
from ctta.core.losses import entropy
from ctta.methods.conjugate_pl import conjugate_label, conjugate_loss
from ctta.testing.networks import make_batch
from plain import make_decisive, norm_weights, with_batch_statistics


def solved(probability, epsilon):
    """Solve the linear system of the paper."""
    eye = torch.eye(probability.shape[1], dtype=probability.dtype)
    outer = probability[:, :, None] * probability[:, None, :]
    return torch.linalg.solve(eye + epsilon * torch.diag_embed(probability) - epsilon * outer, probability)


def test_the_label_by_hand():
    # p = (0.5, 0.25, 0.25), eps = 2: p / (1 + 2 p) = (1/4, 1/6, 1/6), which sums to 7/12.
    label = conjugate_label(torch.tensor([[0.5, 0.25, 0.25]]), 2.0)
    torch.testing.assert_close(label, torch.tensor([[3 / 7, 2 / 7, 2 / 7]]))


@pytest.mark.parametrize("epsilon", [-0.9, 0.0, 1.0, 6.0, 8.0])
def test_the_closed_form_solves_the_system(epsilon):
    probability = torch.randn(20, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul(3).softmax(1)
    torch.testing.assert_close(conjugate_label(probability, epsilon), solved(probability, epsilon))


def test_the_loss_by_hand():
    # p = (3/4, 1/4), eps = 4: p / (1 + 4 p) = (3/16, 1/8), y = (0.6, 0.4); logsumexp = ln 4, h = (ln 3, 0).
    # ln 4 - (0.6 ln 3 - 4 (0.6 x 0.25 + 0.4 x 0.75)) = ln 4 - 0.6 ln 3 + 1.8
    logits = torch.tensor([[3.0, 1.0]]).log()
    torch.testing.assert_close(
        conjugate_loss(logits, 4.0), torch.tensor([4.0]).log() - 0.6 * torch.tensor(3.0).log() + 1.8
    )


def test_without_epsilon_it_is_entropy():
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(conjugate_loss(logits, 0.0), entropy(logits))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("epsilon", "temperature"), [(0.0, 1.0), (6.0, 1.0), (6.0, 2.0)])
def test_ten_batches_against_plain_torch(dtype, tolerance, epsilon, temperature):
    network = make_decisive().to(dtype)
    reference = with_batch_statistics(network)
    learned = norm_weights(reference)
    optimizer = torch.optim.SGD(learned, 1e-3, momentum=0.9, nesterov=True)
    adapter = ConjugatePL(network, preset="cifar10", epsilon=epsilon, temperature=temperature)
    for x in [make_batch("image_bn", 16, seed).to(dtype) for seed in range(10)]:
        h = reference(x) / temperature
        p = h.softmax(1)
        y = solved(p, epsilon)
        loss = (h.logsumexp(1) - (y * h).sum(1) + epsilon * (y * (1 - p)).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            expected = reference(x)
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=tolerance, rtol=tolerance)
    assert torch.equal(adapter.model.conv1.weight, network.conv1.weight)
    assert not torch.equal(adapter.model.bn2.weight, network.bn2.weight)
