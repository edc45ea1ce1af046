"""The classes that a batch holds, and predictions corrected by them if classes come in bursts.

    class_mix     q = mean over samples of k p + (1 - k) / C, k the confidence of p scaled to 0 ... 1
    unevenness    C sum_c (q_c - 1/C)^2: 0 if all classes are alike, C - 1 if there is one
    breadth       1 / (1 + unevenness - (C - 1) / N), at most 1: the share of the classes that the batch holds; if
                  sampling explains that some are missing, they count as held
    class_prior   q of the corrected predictions, repeated as in expectation maximisation (Saerens et al., 2002), and
                  drawn towards 1/C by the share of its unevenness that sampling explains, (C - 1) / N
    corrected     z / 2 + log prior: under a shift, models are surer of their predictions than they should be
    unrest        C / 2 sum_c (q_c - q'_c)^2 - (C - 1) / N: by how much more the mixes of two successive batches q', q
                  differ than sampling explains

A single batch does not tell whether it holds few classes, or whether the model has come to prefer them, as on strong
noise; correcting by its own preference makes a model worse. But a preference lasts, and bursts change: so predictions
are corrected while the unrest is above BURSTS, as an average over about the last 20 batches. In a shuffled stream it is
not, whatever the model prefers. A single sample is never corrected: sampling explains all of its unevenness.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 5  # of expectation maximisation; twenty change fewer than one answer per thousand
BURSTS = 0.25  # unrest above which classes come in bursts
STEP = 0.05  # of the average of unrest, per batch
TOO_SURE = 2.0  # so many times too large are the logits of a model under a shift


def class_mix(probability: Tensor) -> Tensor:
    """The classes that the batch holds, as far as predictions (N, C) are sure, and all alike if they are not, (C,)."""
    chance = 1 / probability.shape[1]
    sure = (probability.amax(1, keepdim=True) - chance) / (1 - chance)
    return (sure * probability + (1 - sure) * chance).mean(0)


def unevenness(mix: Tensor) -> Tensor:
    """Mean square by which classes differ from their equal share, in units of that share; 0-d."""
    return ((mix * len(mix) - 1) ** 2).mean()


def breadth(mix: Tensor, samples: Tensor | int) -> Tensor:
    """The share of the classes that a batch with this mix holds, 1 / C to 1, 0-d."""
    return 1 / (1 + (unevenness(mix) - (len(mix) - 1) / samples).clamp(min=0))


def unrest(mix: Tensor, last: Tensor, samples: int) -> Tensor:
    """By how much the mix differs from that of the last batch beyond what sampling explains, 0-d."""
    classes = len(mix)
    return classes / 2 * ((mix - last) ** 2).sum() - (classes - 1) / samples


def class_prior(probability: Tensor) -> Tensor:
    """Prior of the classes in a batch with these predictions (N, C), (C,)."""
    samples, classes = probability.shape
    by_sampling = (classes - 1) / samples
    prior = towards_uniform(class_mix(probability), by_sampling)
    for _ in range(ROUNDS - 1):
        posterior = probability * prior
        prior = towards_uniform(class_mix(posterior / posterior.sum(1, keepdim=True)), by_sampling)
    return prior


def towards_uniform(mix: Tensor, by_sampling: float) -> Tensor:
    """The mix, drawn towards uniform by the share of its unevenness that sampling explains, (C,)."""
    explained = (by_sampling / unevenness(mix).clamp(min=torch.finfo(mix.dtype).tiny)).clamp(max=1)
    return mix.lerp(torch.full_like(mix, 1 / len(mix)), explained)


def corrected(logits: Tensor) -> Tensor:
    """Logits (N, C) with the batch's prior of the classes."""
    return logits / TOO_SURE + class_prior(logits.softmax(1)).log()
