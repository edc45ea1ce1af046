"""The classes that a batch holds, and predictions corrected by them.

    class_mix     q = mean over samples of k p + (1 - k) / C, k the confidence of p scaled to 0 ... 1
    unevenness    C sum_c (q_c - 1/C)^2: 0 if all classes are alike, C - 1 if there is one
    class_prior   q of the corrected predictions, repeated as in expectation maximisation (Saerens et al., 2002), and
                  drawn towards 1/C by the share of its unevenness that sampling explains, (C - 1) / N; 1/C if the
                  unevenness of the predictions does not exceed that by 0.5
    corrected     z + log prior

In a shuffled batch the prior is uniform and nothing is corrected. A single sample is never corrected: sampling explains
all of its unevenness.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 5  # of expectation maximisation; twenty change no answer in a thousand
MODEL = 0.5  # unevenness that a model has by its own preferences, of samples from all classes alike


def class_mix(probability: Tensor) -> Tensor:
    """The classes that the batch holds, as far as predictions (N, C) are sure, and all alike if they are not, (C,)."""
    chance = 1 / probability.shape[1]
    sure = (probability.amax(1, keepdim=True) - chance) / (1 - chance)
    return (sure * probability + (1 - sure) * chance).mean(0)


def unevenness(mix: Tensor) -> Tensor:
    """Mean square by which classes differ from their equal share, in units of that share; 0-d."""
    return ((mix * len(mix) - 1) ** 2).mean()


def class_prior(probability: Tensor) -> Tensor:
    """Prior of the classes in a batch with these predictions (N, C), uniform unless there is good evidence, (C,)."""
    samples, classes = probability.shape
    uniform = probability.new_full((classes,), 1 / classes)
    by_sampling = (classes - 1) / samples
    mix = class_mix(probability)
    trusted = unevenness(mix) > by_sampling + MODEL
    for _ in range(ROUNDS - 1):
        posterior = probability * shrunk(mix, by_sampling)
        mix = class_mix(posterior / posterior.sum(1, keepdim=True))
    return torch.where(trusted, shrunk(mix, by_sampling), uniform)


def shrunk(mix: Tensor, by_sampling: float) -> Tensor:
    """The mix, drawn towards uniform by the share of its unevenness that sampling explains, (C,)."""
    explained = (by_sampling / unevenness(mix).clamp(min=torch.finfo(mix.dtype).tiny)).clamp(max=1)
    return mix.lerp(torch.full_like(mix, 1 / len(mix)), explained)


def corrected(logits: Tensor) -> Tensor:
    """Logits (N, C) with the batch's prior of the classes."""
    return logits + class_prior(logits.softmax(1)).log()
