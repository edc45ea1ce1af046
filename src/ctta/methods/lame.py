"""LAME: nothing is learned; predictions for samples that lie close together are made to agree.

Boudiaf et al., "Parameter-free Online Test-time Adaptation", CVPR 2022.

    knn_affinity      K_ij = 1 if j is one of the k nearest of i, itself left out
    rbf_affinity      K_ij = exp(-d_ij^2 / (2 sigma^2)), sigma the mean distance to the k-th nearest, itself counted
    energy            sum_i y_i . (log y_i - log p_i - (K y)_i)
    laplacian_answer  y <- softmax(log p + K y) until the energy converges
    returns           log y (there is no update)

Features are the head's input, of length 1. Source statistics.

Departures: the released code's default affinity is rbf, ours kNN. Its neighbours are ours: k others, not symmetrised,
though the paper's affinity is symmetric. LAME gives probabilities, so the logits are their logarithm. The number of
iterations is not read on the host: all run, and those after convergence change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.config import setting
from ctta.base.limits import ITERATIONS
from ctta.core.adapter import Adapter, Step
from ctta.core.settings import Features, Traits

FLOOR = 1e-10  # added to probabilities before their logarithm


@dataclass(frozen=True)
class LAMEConfig(Features):
    """Settings of LAME."""

    affinity: Literal["knn", "rbf"] = setting("knn", "Affinity of two samples: by nearest neighbours, or by distance.")
    neighbours: int = setting(5, "Nearest neighbours that count; for 'rbf' the one whose distance is sigma.", low=1)
    iterations: int = setting(100, "Iterations at most.", low=1, high=ITERATIONS)
    tolerance: float = setting(1e-8, "The energy has converged if its relative change is no larger than this.", low=0.0)


class LAME(Adapter):
    """Corrects the predictions of the source model, batch by batch, and keeps no state."""

    name = "lame"
    title = "LAME"
    traits = Traits("nothing", forwards=(1, 1), backwards=(0, 0))
    config_type = LAMEConfig
    config: LAMEConfig

    def build(self) -> None:
        self.find_head()

    def adapt(self, x: Tensor) -> Step:
        return Step(self.logits(x))

    def logits(self, x: Tensor) -> Tensor:
        features, logits = self.run_features(self.source_model, x)
        affinity = knn_affinity if self.config.affinity == "knn" else rbf_affinity
        kernel = affinity(distances(features), self.config.neighbours)
        return laplacian_answer(logits.softmax(1), kernel, self.config.iterations, self.config.tolerance)


def distances(features: Tensor) -> Tensor:
    """Between all features of length 1, (N, N)."""
    unit = F.normalize(features, dim=1)
    return torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")


def knn_affinity(distance: Tensor, neighbours: int) -> Tensor:
    """1 from each sample to the nearest others, else 0, (N, N)."""
    nearest = distance.topk(min(neighbours + 1, len(distance)), largest=False).indices[:, 1:]  # the first is itself
    return torch.zeros_like(distance).scatter_(1, nearest, 1.0)


def rbf_affinity(distance: Tensor, neighbours: int) -> Tensor:
    """Gaussian in the distance, (N, N); its width is the mean distance to the k-th nearest, itself counted."""
    kth = distance.topk(min(neighbours, len(distance)), largest=False).values[:, -1]
    width = (2 * kth.mean() ** 2).clamp(min=torch.finfo(distance.dtype).tiny)  # all may be equal
    return torch.exp(-(distance**2) / width)


def energy(answer: Tensor, log_prior: Tensor, pairwise: Tensor) -> Tensor:
    """What the iteration lowers: far from the model's answer costs, agreement with neighbours pays."""
    return (-log_prior * answer - pairwise * answer + answer * answer.clip(1e-20).log()).sum()


def laplacian_answer(probabilities: Tensor, kernel: Tensor, iterations: int = 100, tolerance: float = 1e-8) -> Tensor:
    """y <- softmax(log p + K y) until the energy converges; gives log y."""
    log_prior = (probabilities + FLOOR).log()
    found = log_prior.log_softmax(1)
    answer, before = found.exp(), torch.full_like(found[0, 0], torch.inf)
    resting = torch.zeros_like(before, dtype=torch.bool)
    for iteration in range(iterations):
        pairwise = kernel @ answer
        exponent = log_prior + pairwise
        answer = exponent.softmax(1)
        now = energy(answer, log_prior, pairwise)
        found = torch.where(resting, found, exponent.log_softmax(1))
        if iteration > 1:
            resting = resting | ((now - before).abs() <= tolerance * before.abs())
        before = now
    return found
