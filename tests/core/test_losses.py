"""Losses with numbers worked by hand."""

from __future__ import annotations

import math

import torch
from torch import tensor

from ctta.core.losses import consistency, cross_entropy, entropy, masked_mean

EVEN, SURE = tensor([[0.0, 0.0]]), tensor([[math.log(3.0), 0.0]])  # probabilities 1/2, 1/2 and 3/4, 1/4


def test_entropy_by_hand():
    torch.testing.assert_close(entropy(EVEN), tensor([math.log(2)]))
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    torch.testing.assert_close(entropy(SURE), tensor([expected]))


def test_cross_entropy_by_hand():
    torch.testing.assert_close(cross_entropy(tensor([[1.0, 0.0]]), SURE), tensor([-math.log(0.75)]))
    torch.testing.assert_close(cross_entropy(tensor([[0.5, 0.5]]), EVEN), tensor([math.log(2)]))


def test_consistency_by_hand():
    forward = -0.5 * (math.log(0.75) + math.log(0.25))  # the teacher is even, the student sure
    backward = math.log(2)  # the student's probabilities against an even teacher
    torch.testing.assert_close(consistency(EVEN, SURE, symmetric=False), tensor([forward]))
    torch.testing.assert_close(consistency(EVEN, SURE, symmetric=True), tensor([0.5 * (forward + backward)]))


def test_masked_mean_by_hand():
    values = tensor([1.0, 2.0, 4.0])
    assert masked_mean(values, tensor([True, False, True])) == 2.5
    assert masked_mean(values, tensor([False, False, False])) == 0
