"""ROID's equations with numbers worked by hand, and the whole against plain torch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from ctta import ROID
from ctta.methods.roid import diversity, likelihood_ratio, sample_weight, scaled, smoothed_prior
from ctta.testing.networks import make_batch, make_network
from plain import identity_views, norm_weights, roid_batch, with_batch_statistics


def test_diversity_is_one_minus_the_cosine():
    probability = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    found = diversity(probability, torch.tensor([0.3, 0.4]))
    assert found.tolist() == pytest.approx([1 - 0.6, 1 - 0.7 / (0.5 * math.sqrt(2)), 1 - 0.8], abs=1e-6)


def test_scaled_and_its_guards():
    assert scaled(torch.tensor([2.0, 4.0, 3.0])).tolist() == [0, 1, 0.5]
    assert scaled(torch.tensor([7.0, 7.0])).tolist() == [0, 0]
    assert scaled(torch.tensor([7.0])).tolist() == [0]


def test_sample_weight():
    # Diversity scales to 0, 1/4, 1 (mean 5/12), certainty to 1, 0, 1/2: only the last is kept, with exp(3/2).
    found = sample_weight(torch.tensor([0.1, 0.2, 0.5]), torch.tensor([-1.0, -2.0, -1.5]), 1 / 3)
    assert found.tolist() == pytest.approx([0, 0, math.exp(1.5)])
    assert sample_weight(torch.tensor([0.4]), torch.tensor([-1.0]), 1 / 3).tolist() == [1]
    assert sample_weight(torch.tensor([0.4, 0.4]), torch.tensor([-1.0, -1.0]), 1 / 3).tolist() == [1, 1]


def test_likelihood_ratio():
    # p = (0.8, 0.2): -0.8 log 4 - 0.2 log 0.25, but for the 1e-5 inside the logarithm.
    logits = torch.tensor([[math.log(0.8), math.log(0.2)]], dtype=torch.float64)
    assert likelihood_ratio(logits).item() == pytest.approx(-0.6 * math.log(4), abs=1e-4)
    # Saturated: p is clipped at 0.99, so the largest possible value counts, -0.99 log 99.
    sure = likelihood_ratio(torch.tensor([[500.0, 0.0]], dtype=torch.float64))
    assert sure.item() == pytest.approx(-0.99 * math.log(99 + 1e-5))


def test_smoothed_prior():
    # Two samples, three classes, mean probability (0.5, 0.25, 0.25): g = (1/2) / 0.5 = 1, so (p + 1) / 4.
    p = torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.2, 0.4]], dtype=torch.float64)
    assert smoothed_prior(p.log()).tolist() == pytest.approx([1.5 / 4, 1.25 / 4, 1.25 / 4])
    # Four samples: 1/C is larger than 1/N, g = (1/3) / 0.5 = 2/3.
    assert smoothed_prior(p.repeat(2, 1).log()).tolist() == pytest.approx(
        [(0.5 + 2 / 3) / 3, (0.25 + 2 / 3) / 3, (0.25 + 2 / 3) / 3]
    )


def test_correction_of_probabilities_is_theirs_times_the_prior():
    x, network = make_batch("image_bn", 8, 0), make_network("image_bn")
    plain = ROID(network, correction="none", views=identity_views)(x)
    prior = smoothed_prior(plain)
    found = ROID(network, correction="probabilities", views=identity_views)(x).softmax(1)
    expected = plain.softmax(1) * prior
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True))
    torch.testing.assert_close(ROID(network, views=identity_views)(x), plain * prior)


@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_against_plain_torch(preset):
    network = make_network("image_bn")
    student, source = with_batch_statistics(network), copy.deepcopy(network)
    learned = norm_weights(student)
    optimizer = (
        torch.optim.Adam(learned, 1e-3) if preset == "cifar10" else torch.optim.SGD(learned, 2.5e-4, 0.9, nesterov=True)
    )
    adapter = ROID(network, preset=preset, views=identity_views)
    mean = torch.full((5,), 0.2)
    for x in [make_batch("image_bn", 12, seed) for seed in range(10)]:
        loss, expected, keep, mean = roid_batch(student, x, mean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for new, old in zip(learned, norm_weights(source), strict=True):
                new.copy_(0.99 * new + 0.01 * old)
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-5, rtol=1e-4)
        assert step.samples["selected"].tolist() == keep.tolist()
        assert step.info["forwards"] == pytest.approx(1 + keep.sum().item() / 12)
    torch.testing.assert_close(adapter.model.bn2.weight, student.bn2.weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(adapter.mean_probability, mean, atol=1e-5, rtol=1e-4)


def test_batches_of_equal_samples():
    """All samples are kept with weight 1, and there is no 0 / 0."""
    adapter = ROID(make_network("image_bn"))
    x = make_batch("image_bn", 1, 0).expand(6, -1, -1, -1).contiguous()
    step = adapter.step(x)
    assert step.logits.isfinite().all()
    assert step.samples["selected"].all()
    assert adapter.skipped == 0


class FlatNorm(nn.Module):
    """Normalises features without positions, which fails on a batch of one."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.norm(x.mean((2, 3))))


def test_a_single_sample_that_is_kept_has_company_in_the_view_s_pass():
    adapter = ROID(FlatNorm(), views=identity_views)
    kept = []
    for x in [make_batch("image_bn", 3, seed) for seed in range(12)]:
        step = adapter.step(x)
        assert step.logits.isfinite().all()
        kept.append(int(step.samples["selected"].sum()))
    assert 1 in kept
