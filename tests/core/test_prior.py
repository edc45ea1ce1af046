"""The prior of the classes in a batch, with numbers worked by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import tensor

from ctta.core.prior import BURSTS, breadth, class_mix, class_prior, corrected, towards_uniform, unevenness, unrest


def close(found, expected):
    torch.testing.assert_close(found, tensor(expected), atol=1e-4, rtol=0)


def test_the_mix_of_classes_follows_sure_labels_and_is_even_where_they_are_not():
    close(class_mix(tensor([[1.0, 0.0], [1.0, 0.0]])), [1.0, 0.0])  # a burst of one class
    close(class_mix(tensor([[0.5, 0.5], [0.5, 0.5]])), [0.5, 0.5])
    # 0.9 is 0.8 of the way from chance to certainty: 0.8 * 0.9 + 0.2 * 0.5 = 0.82
    close(class_mix(tensor([[0.9, 0.1]])), [0.82, 0.18])


def test_unevenness_is_nought_of_equal_shares_and_classes_less_one_of_a_single_class():
    close(unevenness(tensor([0.25, 0.25, 0.25, 0.25])), 0.0)
    close(unevenness(tensor([1.0, 0.0, 0.0, 0.0])), 3.0)
    close(unevenness(tensor([0.5, 0.5, 0.0, 0.0])), 1.0)


def test_breadth_is_the_share_of_classes_that_sampling_does_not_explain():
    close(breadth(tensor([1.0, 0.0, 0.0, 0.0]), 1_000_000), 0.25)
    close(breadth(tensor([0.5, 0.5, 0.0, 0.0]), 8), 1 / (1 + 1 - 3 / 8))
    close(breadth(tensor([1.0, 0.0, 0.0, 0.0]), 1), 1.0)  # a single sample has one class


def test_what_sampling_explains_is_taken_off():
    # 8 samples of 4 classes: 3/8 by chance, and an unevenness of 3, so an eighth is drawn to 1/4
    close(towards_uniform(tensor([1.0, 0.0, 0.0, 0.0]), 3 / 8), [0.875 + 1 / 32, 1 / 32, 1 / 32, 1 / 32])
    close(towards_uniform(tensor([0.4, 0.2, 0.2, 0.2]), 3 / 8), [0.25, 0.25, 0.25, 0.25])  # 0.12 is less than that


def test_unrest_is_what_sampling_does_not_explain():
    one, other = tensor([1.0, 0.0, 0.0, 0.0]), tensor([0.0, 1.0, 0.0, 0.0])
    close(unrest(one, other, 8), 4.0 - 3 / 8)  # half of 4 (1 + 1)
    close(unrest(one, one, 8), -3 / 8)


def test_shuffled_batches_have_no_unrest_whatever_a_model_prefers():
    generator = torch.Generator().manual_seed(0)
    prefers = tensor([0.55, 0.25, 0.1, 0.05, 0.05])
    labels = prefers.multinomial(400 * 20, replacement=True, generator=generator).view(400, 20)
    mixes = torch.nn.functional.one_hot(labels, 5).float().mean(1)
    shuffled = torch.stack([unrest(b, a, 20) for a, b in pairwise(mixes)])
    assert shuffled.mean() < 0.02


def test_bursts_have_unrest():
    bursts = torch.eye(5)[tensor([0, 0, 0, 1, 1, 1, 3, 3, 3, 2, 2, 2])]  # three batches of each class
    changing = torch.stack([unrest(b, a, 20) for a, b in pairwise(bursts)])
    close(changing.mean(), (3 * 5.0 - 11 * 4 / 20) / 11)
    assert changing.mean() > BURSTS


def test_a_burst_decides_what_is_in_doubt():
    burst = torch.cat([tensor([[0.96, 0.02, 0.02]]).repeat(15, 1), tensor([[0.35, 0.63, 0.02]])])
    assert burst[-1].argmax() == 1
    prior = class_prior(burst)
    assert prior[0] > 0.8
    assert corrected(burst.log()).argmax(1).tolist() == [0] * 16
    close(corrected(burst.log()), (burst.sqrt() * prior).log().tolist())


@pytest.mark.parametrize("samples", [1, 6, 60])
def test_batches_of_all_classes_and_single_samples_are_left_alone(samples):
    generator = torch.Generator().manual_seed(samples)
    logits = 8 * torch.eye(6)[torch.arange(samples) % 6] + torch.randn(samples, 6, generator=generator)
    close(class_prior(logits.softmax(1)), [1 / 6] * 6)
    assert corrected(logits).argmax(1).equal(logits.argmax(1))


def test_a_certain_answer_outweighs_any_prior():
    burst = tensor([[30.0, 0.0, 0.0]]).repeat(31, 1)
    logits = torch.cat([burst, tensor([[0.0, 30.0, 0.0]])])
    assert corrected(logits).argmax(1).tolist() == [0] * 31 + [1]
    assert corrected(logits).isfinite().all()
