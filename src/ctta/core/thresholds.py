"""Which pseudo-labels are good enough to learn from: DSS's rule, and those of semi-supervised learning.

Each rule is a function of the pseudo-labels (N, C) and of the state that it carries along the stream, and gives a
weight per sample, (N,): 1 if the sample is selected, 0 if not, and anything between for SoftMatch.

    dynamic     DSS: confidence >= pi tau_c; pi follows the mean confidence, tau_c is the class's part of it
    fixed       FixMatch: confidence >= level
    flexmatch   confidence >= level s_c / (2 - s_c); s_c is how often class c passes the level, against the most
                frequent one or the samples that pass for none; counted over about the last 2,000 samples
    freematch   confidence >= pi q_c / max q; pi follows the mean confidence, q the mean probability
    softmatch   exp(-2 (m - mu)^2 / var) below mu, 1 above; mu and var follow mean and variance of the confidence m,
                after the pseudo-labels were aligned to equal classes
    adamatch    confidence >= level times the mean confidence of the source model on this batch
    ups         mean confidence over the views >= level, with a standard deviation below 0.05; on all other samples, a
                class with p < alpha and a standard deviation below 0.005, at temperature 2, is a complementary label
    none        all samples

Departures from their papers, which learn from a finite data set with labels: averages decay by DSS's lambda, not by
0.999, which is too slow for a stream. FlexMatch counts over a window and starts with all classes equal; its convex map.
FreeMatch without its fairness loss. AdaMatch has the source model in the place of labelled data, and no alignment. UPS
takes its uncertainty from the augmented views instead of dropout (none, if no views are averaged), and does not balance
classes. How selected samples are learned from is DSS's in each case.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Rule = Literal["dynamic", "fixed", "flexmatch", "freematch", "softmatch", "adamatch", "ups", "none"]

LEVEL = 0.95  # of FixMatch, FlexMatch and AdaMatch
SURE = 0.7  # UPS's level
WINDOW = 2000  # samples that FlexMatch counts over
TRUNCATION = 2  # SoftMatch's n_sigma
SPREAD, NEGATIVE_SPREAD = 0.05, 0.005  # UPS: standard deviations of a label, and of a complementary label, are below
NEGATIVE_TEMPERATURE = 2.0


class State(NamedTuple):
    """What a rule carries along the stream."""

    level: Tensor  # 0-d: pi, or SoftMatch's mu
    classes: Tensor  # (C,): what the rule knows of classes, 1/C at the start
    variance: Tensor  # 0-d: SoftMatch's


def start(classes: int, device: torch.device, dtype: torch.dtype) -> State:
    """The state before the first batch."""
    level = torch.full((), 1 / classes, device=device, dtype=dtype)
    return State(level, level.repeat(classes), torch.ones_like(level))


def dynamic_threshold(threshold: Tensor, confidence: Tensor, lambda_: float) -> Tensor:
    """Eq. 1 of DSS: the threshold moves towards the batch's mean confidence."""
    return lambda_ * threshold + (1 - lambda_) * confidence.mean()


def domain_start(threshold: Tensor, classes: int) -> Tensor:
    """The threshold at the start of a domain: half way between where it was and chance."""
    return (threshold + 1 / classes) / 2


def class_confidence(confidence: Tensor, label: Tensor, classes: int, *, average: bool) -> Tensor:
    """Eq. 3: confidence that fell to each class, (C,), over N as printed; or its average over the class's samples."""
    total = confidence.new_zeros(classes).index_add(0, label, confidence)
    return total / (class_counts(label, classes).clamp(min=1) if average else len(label))


def class_counts(label: Tensor, classes: int) -> Tensor:
    """Samples of each class; unlike `bincount`, without a device synchronisation."""
    return label.new_zeros(classes).index_add(0, label, torch.ones_like(label))


def class_ratio(delta: Tensor) -> Tensor:
    """Eq. 2: each class against the most confident one."""
    return delta / delta.max()


def class_threshold(threshold: Tensor, ratio: Tensor) -> Tensor:
    """Eq. 4: one threshold per class."""
    return threshold * ratio


def dynamic(
    pseudo: Tensor, state: State, lambda_: float, delta: Literal["sum", "mean", "running"]
) -> tuple[Tensor, State]:
    """DSS: Eq. 1 to 4."""
    (confidence, label), (classes,) = pseudo.max(1), state.classes.shape
    level, average = dynamic_threshold(state.level, confidence, lambda_), state.classes
    found = class_confidence(confidence, label, classes, average=delta != "sum")
    if delta == "running":
        seen = class_counts(label, classes) > 0
        found = average = torch.where(seen, torch.lerp(average, found, 1 - lambda_), average)
    selected = confidence >= class_threshold(level, class_ratio(found))[label]
    return selected, State(level, average, state.variance)


def fixed(pseudo: Tensor, state: State, level: float) -> tuple[Tensor, State]:
    """FixMatch: one number for all classes."""
    threshold = torch.full_like(state.level, level)
    return pseudo.amax(1) >= threshold, state._replace(level=threshold)


def flexmatch(pseudo: Tensor, state: State, level: float) -> tuple[Tensor, State]:
    """FlexMatch; `classes` are the parts of the window that pass the level with each label."""
    (confidence, label), (classes,) = pseudo.max(1), state.classes.shape
    unused = 1 - state.classes.sum()
    status = state.classes / torch.maximum(state.classes.max(), unused)
    selected = confidence >= level * (status / (2 - status))[label]
    passed = pseudo.new_zeros(classes).index_add(0, label, (confidence >= level).to(pseudo.dtype)) / len(label)
    moved = torch.lerp(state.classes, passed, min(len(label) / WINDOW, 1.0))
    return selected, State(torch.full_like(state.level, level), moved, state.variance)


def freematch(pseudo: Tensor, state: State, lambda_: float) -> tuple[Tensor, State]:
    """FreeMatch: as dynamic, with the running mean probability as the measure of a class."""
    confidence, label = pseudo.max(1)
    level = dynamic_threshold(state.level, confidence, lambda_)
    mean = lambda_ * state.classes + (1 - lambda_) * pseudo.mean(0)
    return confidence >= class_threshold(level, class_ratio(mean))[label], State(level, mean, state.variance)


def softmatch(pseudo: Tensor, state: State, lambda_: float) -> tuple[Tensor, State]:
    """SoftMatch: a truncated Gaussian of the confidence; a batch of one sample leaves the variance as it is."""
    mean = lambda_ * state.classes + (1 - lambda_) * pseudo.mean(0)
    confidence = aligned(pseudo, mean).amax(1)
    level, variance = dynamic_threshold(state.level, confidence, lambda_), state.variance
    if len(pseudo) > 1:
        variance = lambda_ * variance + (1 - lambda_) * confidence.var()
    below = (confidence - level).clamp(max=0)
    weight = torch.exp(-(below**2) * TRUNCATION**2 / (2 * variance))
    return weight, State(level, mean, variance)


def aligned(pseudo: Tensor, mean: Tensor) -> Tensor:
    """Pseudo-labels whose classes would be equal on average, given their running mean (C,)."""
    found = pseudo * (1 / len(mean) + 1e-6) / (mean + 1e-6)
    return found / found.sum(1, keepdim=True)


def adamatch(pseudo: Tensor, state: State, level: float, source_confidence: float) -> tuple[Tensor, State]:
    """AdaMatch: relative to the mean confidence of the source model on the batch."""
    return fixed(pseudo, state, level * source_confidence)


def ups(views: Tensor, level: float, alpha: float) -> tuple[Tensor, Tensor]:
    """UPS: whether samples are selected, and their complementary labels (N, C), from logits of views (V, N, C)."""
    mean, spread = mean_and_spread(views.softmax(2))
    confidence, label = mean.max(1)
    selected = (confidence >= level) & (spread.gather(1, label[:, None])[:, 0] < SPREAD)
    mean, spread = mean_and_spread((views / NEGATIVE_TEMPERATURE).softmax(2))
    complementary = (mean < alpha) & (spread < NEGATIVE_SPREAD) & ~selected[:, None]
    return selected, complementary.scatter(1, label[:, None], False)


def mean_and_spread(probability: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over views, (V, N, C) to (N, C) each; the spread of a single view is 0."""
    return probability.mean(0), probability.std(0, correction=1 if len(probability) > 1 else 0)
