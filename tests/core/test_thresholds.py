"""Rules that select samples, with numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from ctta.core import thresholds
from ctta.core.thresholds import State


def close(found, expected):
    torch.testing.assert_close(found, tensor(expected), atol=1e-6, rtol=0)


def state(level=1 / 3, classes=(1 / 3, 1 / 3, 1 / 3), variance=1.0):
    return State(tensor(level), tensor(classes), tensor(variance))


def test_the_start_is_chance():
    level, classes, variance = thresholds.start(4, torch.device("cpu"), torch.float64)
    assert (level.item(), classes.tolist(), variance.item()) == (0.25, [0.25] * 4, 1.0)
    assert level.dtype == classes.dtype == variance.dtype == torch.float64


def test_eq1_dynamic_threshold():
    # 0.9 x 0.5 + 0.1 x (0.8 + 0.4)/2 = 0.45 + 0.06
    close(thresholds.dynamic_threshold(tensor(0.5), tensor([0.8, 0.4]), 0.9), 0.51)


def test_threshold_at_a_domain_start():
    # (0.6 + 1/4)/2
    close(thresholds.domain_start(tensor(0.6), 4), 0.425)


CONFIDENCE, LABEL = tensor([0.9, 0.6, 0.5]), tensor([0, 0, 2])


def test_eq3_class_confidence_as_printed():
    # class 0: (0.9 + 0.6)/3, class 1: nothing, class 2: 0.5/3
    close(thresholds.class_confidence(CONFIDENCE, LABEL, 3, average=False), [0.5, 0.0, 0.5 / 3])


def test_eq3_class_confidence_averaged():
    # class 0: (0.9 + 0.6)/2, class 1: nothing, class 2: 0.5/1
    close(thresholds.class_confidence(CONFIDENCE, LABEL, 3, average=True), [0.75, 0.0, 0.5])


def test_eq2_class_ratio():
    close(thresholds.class_ratio(tensor([0.5, 0.0, 0.25])), [1.0, 0.0, 0.5])


def test_eq4_class_threshold():
    close(thresholds.class_threshold(tensor(0.6), tensor([1.0, 0.0, 0.5])), [0.6, 0.0, 0.3])


PSEUDO = tensor([[0.8, 0.1, 0.1], [0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.25, 0.35, 0.4]])  # labels 0, 1, 0, 2


def test_dynamic():
    # pi = 0.9 x 0.7 + 0.1 x 2.3/4 = 0.6875; delta ~ (1.3, 0.6, 0.4): thresholds 0.6875, 0.3173, 0.2115.
    selected, after = thresholds.dynamic(PSEUDO, state(0.7), 0.9, "sum")
    assert selected.tolist() == [True, True, False, True]
    close(after.level, 0.6875)
    # Averaged per class: delta = (0.65, 0.6, 0.4), thresholds 0.6875, 0.6346, 0.4231: the second and fourth fail too.
    assert thresholds.dynamic(PSEUDO, state(0.7), 0.9, "mean")[0].tolist() == [True, False, False, False]


def test_fixed():
    selected, after = thresholds.fixed(PSEUDO, state(), 0.6)
    assert selected.tolist() == [True, True, False, False]
    close(after.level, 0.6)


def test_flexmatch():
    # Parts of the window that pass 0.5: 0.4, 0.2 and 0; the other 0.4 pass for none, and are no more than the largest.
    # Status 1, 1/2, 0; convex map s / (2 - s): 1, 1/3, 0; thresholds 0.5, 1/6, 0.
    selected, after = thresholds.flexmatch(PSEUDO, state(classes=(0.4, 0.2, 0.0)), 0.5)
    assert selected.tolist() == [True, True, True, True]
    # Now 0.7 pass for none: status 1/7 x (2, 1, 0).
    few, _ = thresholds.flexmatch(PSEUDO, state(classes=(0.2, 0.1, 0.0)), 0.7)
    assert few.tolist() == [True, True, True, True]
    # All classes equal, nothing unused: status 1, the level itself.
    start, _ = thresholds.flexmatch(PSEUDO, state(), 0.7)
    assert start.tolist() == [True, False, False, False]
    # Of four samples, 0.8, 0.6 and 0.5 pass 0.5: two for class 0, one for class 1. They are 4/2000 of the window.
    rest = 1 - 4 / 2000
    close(after.classes, [0.4 * rest + 0.5 * 4 / 2000, 0.2 * rest + 0.25 * 4 / 2000, 0.0])


def test_the_convex_map_of_flexmatch():
    # Parts 0.4, 0.32 and 0, 0.28 pass for none: status 1, 0.8, 0. The map has 0.8 / 1.2 = 2/3, so class 1 has the
    # threshold 0.9 x 2/3 = 0.6; the status alone would have 0.72.
    pseudo = tensor([[0.2, 0.65, 0.15], [0.2, 0.55, 0.25], [0.85, 0.1, 0.05]])
    selected, _ = thresholds.flexmatch(pseudo, state(classes=(0.4, 0.32, 0.0)), 0.9)
    assert selected.tolist() == [True, False, False]


def test_flexmatch_with_a_batch_that_fills_the_window():
    large = PSEUDO.repeat(1000, 1)
    close(thresholds.flexmatch(large, state(), 0.5)[1].classes, [0.5, 0.25, 0.0])


def test_freematch():
    # pi = 0.5 x 0.7 + 0.5 x 0.575 = 0.6375; q = (1/3 + mean)/2, mean = (0.4125, 0.3125, 0.275).
    mean = [(1 / 3 + value) / 2 for value in (0.4125, 0.3125, 0.275)]
    selected, after = thresholds.freematch(PSEUDO, state(0.7), 0.5)
    close(after.level, 0.6375)
    close(after.classes, mean)
    limits = [0.6375 * value / mean[0] for value in mean]  # 0.6375, 0.5520, 0.5200
    assert limits == pytest.approx([0.6375, 0.55201, 0.51997], abs=1e-4)
    assert selected.tolist() == [True, True, False, False]


def test_softmatch():
    # lambda = 0: everything is this batch's. Aligned by (0.5, 0.5) nothing changes: mu = 0.7, variance (0.1^2 x 2)/1.
    pseudo = tensor([[0.8, 0.2], [0.4, 0.6], [0.2, 0.8], [0.6, 0.4]])
    weight, after = thresholds.softmatch(pseudo, state(0.5, (0.5, 0.5)), 0.0)
    close(after.level, 0.7)
    close(after.variance, 0.04 / 3)
    # 0.8 is above mu. 0.6 is 0.1 below: exp(-0.01 x 4 / (2 x 0.04/3)) = exp(-1.5).
    close(weight, [1.0, math.exp(-1.5), 1.0, math.exp(-1.5)])


def test_softmatch_measures_what_is_aligned():
    # lambda = 0: the mean is 0.75, 0.25. Aligned: 0.9/0.75 and 0.1/0.25, over their sum, is 0.75, 0.25; 0.6/0.75 and
    # 0.4/0.25 is 1/3, 2/3. So mu = (0.75 + 2/3)/2, not 0.75, and the variance is (0.75 - 2/3)^2/2, not 0.045.
    _, after = thresholds.softmatch(tensor([[0.9, 0.1], [0.6, 0.4]]), state(0.5, (0.5, 0.5)), 0.0)
    torch.testing.assert_close(after.level, tensor((0.75 + 2 / 3) / 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(after.variance, tensor((0.75 - 2 / 3) ** 2 / 2), atol=1e-5, rtol=0)


def test_alignment_makes_classes_equal():
    # 0.6/0.75 and 0.4/0.25, over their sum: 0.8 and 1.6 over 2.4.
    close(thresholds.aligned(tensor([[0.6, 0.4]]), tensor([0.75, 0.25])), [[1 / 3, 2 / 3]])


def test_softmatch_with_one_sample_keeps_the_variance():
    weight, after = thresholds.softmatch(tensor([[0.5, 0.5]]), state(0.5, (0.5, 0.5), 0.3), 0.9)
    assert weight.isfinite().all()
    close(after.variance, 0.3)


def test_adamatch():
    selected, after = thresholds.adamatch(PSEUDO, state(), 0.9, 0.6)
    close(after.level, 0.54)
    assert selected.tolist() == [True, True, False, False]


def test_ups():
    # Probabilities of the first class in two views. Mean 0.8, spread 0.02 sqrt 2: selected. Mean 0.8, spread
    # 0.1 sqrt 2: not. Mean 0.6: not.
    first = tensor([[0.82, 0.9, 0.6], [0.78, 0.7, 0.6]])
    views = torch.stack([first, 1 - first], 2).log()  # (V, N, C)
    selected, complementary = thresholds.ups(views, 0.7, 0.05)
    assert selected.tolist() == [True, False, False]
    assert not complementary.any()


def test_the_spreads_of_ups():
    # Two views differ by d in their label's probability: a spread of d / sqrt 2, which is 0.042 and 0.057.
    first = tensor([[0.83, 0.84], [0.77, 0.76]])
    selected, _ = thresholds.ups(torch.stack([first, 1 - first], 2).log(), 0.7, 0.05)
    assert selected.tolist() == [True, False]
    # Rejected samples, whose third class has 0.03 and 0.034, and 0.02 and 0.04, at temperature 2: 0.0028 and 0.0141.
    views = tensor([[[0.5, 0.47, 0.03], [0.5, 0.48, 0.02]], [[0.5, 0.466, 0.034], [0.5, 0.46, 0.04]]])
    selected, complementary = thresholds.ups(2 * views.log(), 0.7, 0.05)
    assert not selected.any()
    assert complementary.tolist() == [[False, False, True], [False, False, False]]


def test_ups_has_complementary_labels_on_what_it_rejects():
    # At temperature 2 probabilities are their roots over the sum: 0.6, 0.399, 0.001 to 0.7746, 0.6317, 0.0316.
    one = tensor([[0.6, 0.399, 0.001], [0.998, 0.001, 0.001], [0.6, 0.39, 0.01]])
    selected, complementary = thresholds.ups(one.log()[None], 0.7, 0.05)
    assert selected.tolist() == [False, True, False]
    # 0.0316 over 1.4379 is 0.022, below 0.05; 0.1 over 1.499 is not; the second sample is selected.
    assert complementary.tolist() == [[False, False, True], [False, False, False], [False, False, False]]


def test_ups_never_rules_out_the_label_itself():
    even = torch.zeros(2, 1, 40)  # 1/40 each, below alpha
    _, complementary = thresholds.ups(even, 0.7, 0.05)
    assert complementary.sum() == 39
    assert not complementary[0, 0]
