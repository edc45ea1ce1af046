"""Drift: detects from the inputs that the stream has moved to another domain. No network pass, label or device sync.

A control chart (Shewhart, 1931) on five numbers per sample:

    signals     brightness, contrast, colour, and roughness along each of the last two dimensions, (N, 5)
    distance    d^2 = mean over signals of (m - r)^2 / (v/n + w/k)
                n samples of the batch with mean m and variance v; k samples since the last boundary with r and w
    usual       u, the median of d along the stream, at least 1: log u <- log u + RATE ([d > u] - 1/2)
    boundary    d > LIMIT u

d is in standard errors, about 1 if batches differ only by chance, so u = 1 there and LIMIT is the three standard
errors of every control chart. If batches differ anyway (classes in bursts), u grows and only larger changes count
as boundaries. So a steady change, however steep, has no boundary; and if every second batch starts a domain, none is
reported.

Batches of fewer than FEW samples are gathered until there are as many. The reference forgets what is more than MEMORY
samples ago. The constants were chosen on the four corruptions that are not in the paper's tables, see
`benchmarks/drift.py`, which also shows delay, misses and false alarms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

SIGNALS = ("brightness", "contrast", "colour", "roughness of rows", "roughness of columns")
LIMIT = 3.0  # a boundary is so many times what is usual
RATE = 0.3  # how quickly that is learned, per batch, on a log scale
FEW = 32  # samples that it takes for a judgement
MEMORY = 2000  # samples that the reference remembers
TINY = 1e-12  # a squared standard error below this is none


class Inspection(NamedTuple):
    """What a batch shows, before it is kept."""

    boundary: Tensor  # 0-d bool: whether a domain starts with it
    reference: Tensor
    gathered: Tensor
    usual: Tensor


class Detector(nn.Module):
    """Says of each batch whether a domain starts with it: `if detector(x): ...`; `ctta.DSS(model,
    boundaries="detected")` has one inside.

    Samples are summed up as a tensor (3, 5): how many, their mean, their squared deviations from it.
    """

    reference: Tensor  # samples since the last boundary
    gathered: Tensor  # samples that wait to be judged
    usual: Tensor  # u

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        for name in ("reference", "gathered"):
            self.register_buffer(name, torch.zeros(3, len(SIGNALS), device=device, dtype=torch.float32))
        self.register_buffer("usual", torch.ones((), device=device, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        seen = self.inspect(x)
        self.accept(seen)
        return seen.boundary

    def inspect(self, x: Tensor) -> Inspection:
        """Judge a batch. Nothing changes until it is accepted; nothing is read on the host."""
        return self.judge(signals(x))

    def judge(self, values: Tensor) -> Inspection:
        """The same from the signals of the batch, (N, 5)."""
        gathered = merge(self.gathered, summary(values))
        enough, known = gathered[0, 0] >= FEW, self.reference[0, 0] > 0
        apart = distance(self.reference, gathered)
        boundary = enough & known & (apart > LIMIT * self.usual)
        longer = forget(merge(self.reference, gathered), MEMORY)
        return Inspection(
            boundary,
            torch.where(boundary, gathered, torch.where(enough, longer, self.reference)),
            torch.where(enough, torch.zeros_like(gathered), gathered),
            torch.where(enough & known, median_step(self.usual, apart), self.usual),
        )

    @staticmethod
    def problem(found: Mapping[str, Tensor]) -> str:
        """What keeps loaded tensors from being a detector's, whose shapes they have; empty if nothing does."""
        counted = {name: found[name][[0, 2]] for name in ("reference", "gathered") if name in found}
        negative = [name for name, value in counted.items() if (value < 0).any()]
        if "usual" in found and found["usual"] < 1:
            return "usual is below 1"
        return f"{negative[0]} has negative counts or squares" if negative else ""

    @torch.no_grad()
    def accept(self, seen: Inspection) -> None:
        """Go on from what the batch showed."""
        self.reference.copy_(seen.reference)
        self.gathered.copy_(seen.gathered)
        self.usual.copy_(seen.usual)


@torch.no_grad()
def signals(x: Tensor) -> Tensor:
    """Five numbers per sample, (N, 5): images (N, C, H, W), point clouds (N, P, 3), or anything with a batch dimension.

    Colour is how far channels lie apart at a pixel; of a cloud, how far points lie from its centre.
    """
    x = x.to(torch.float32) if x.dim() > 2 else x.to(torch.float32).unsqueeze(1)
    samples = x.flatten(1)
    colour = x.var(1, correction=0).flatten(1).mean(1).sqrt()
    return torch.stack(
        [samples.mean(1), samples.std(1, correction=0), colour, roughness(x, -1), roughness(x, -2)], dim=1
    )


def roughness(x: Tensor, dim: int) -> Tensor:
    """Mean difference between neighbours along a dimension, (N,)."""
    return x.diff(dim=dim).abs().flatten(1).sum(1) / max(1, x[0].numel() * (x.shape[dim] - 1) // x.shape[dim])


def summary(values: Tensor) -> Tensor:
    """How many samples, their mean and their squared deviations from it, (3, 5)."""
    mean = values.mean(0)
    return torch.stack([torch.full_like(mean, len(values)), mean, (values - mean).square().sum(0)])


def merge(one: Tensor, other: Tensor) -> Tensor:
    """The summary of two groups of samples together (Chan et al., 1979); the first may be empty."""
    count, gap = one[0] + other[0], other[1] - one[1]
    share = other[0] / count
    return torch.stack([count, one[1] + gap * share, one[2] + other[2] + gap.square() * one[0] * share])


def forget(group: Tensor, memory: float) -> Tensor:
    """The same mean and variance, as if of no more samples than `memory`."""
    kept = (memory / group[0]).clamp(max=1)
    return torch.stack([group[0] * kept, group[1], group[2] * kept])


def distance(reference: Tensor, batch: Tensor) -> Tensor:
    """d: how far two means are apart, in standard errors of the difference (Welch), over all signals; 0-d."""
    error = squared_error(reference) + squared_error(batch)
    return ((batch[1] - reference[1]).square() / (error + TINY)).mean().sqrt()


def squared_error(group: Tensor) -> Tensor:
    """Squared standard error of a mean: variance over count."""
    count, deviations = group[0], group[2]
    return deviations / (count * (count - 1)).clamp(min=1)


def median_step(usual: Tensor, apart: Tensor) -> Tensor:
    """A step towards the median of the distances, up or down by the same factor; chance, 1, is the least."""
    return (usual * ((apart > usual).to(usual.dtype) - 0.5).mul(RATE).exp()).clamp(min=1)
