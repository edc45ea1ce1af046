"""What clean samples of the source domain tell: whether the model still knows them, whether the stream is like them.

Whether it still knows them. At most SAMPLES of them are kept, and predicted by the adapter and by the reference:

    known       share of right answers; without labels, of answers that are the reference's own
    rank        exp of the entropy of the normalised singular values of the probabilities (Roy & Vetterli, 2007)
    forgotten   if the adapter knows DROP less than the reference, or has less than HALF of its rank

The reference has the source's weights under the statistics that the method works with now, so it is what the adapter
was at the start, and is no worse on clean samples for having followed a stream. Clean samples are batches of their own.
Probabilities are ranked because their rank fell most in the streams that were looked at: as TENT collapsed on ResNet-20
until a seventh of the clean samples were right, from 9.9 to 3.1; logits from 8.4 to 5.6, features from 27 to 17.

Whether the stream is like them. h is the entropy of the source model for a sample, under the source's own statistics:
there a sample's h depends on no other sample, neither on the batch's size nor on its classes.

    u           rank of h among clean samples and those of the stream so far, from 0 to 1, ties at random
    wealth      <- wealth (1 + stake (u - 1/2))                                     the bet of POEM (Bar et al., 2024)
    stake       += RATE g / sqrt(sum of g^2), g = (u - 1/2) / (1 + stake (u - 1/2)), between -STAKE and STAKE
    changed     if wealth >= 1 / FALSE_ALARMS

If the stream is like the clean samples, all of them are exchangeable: whatever came before, u is uniform, so the bet is
fair, the wealth is a martingale that starts at 1, and by Ville's inequality it ever reaches 1 / FALSE_ALARMS with a
probability of at most FALSE_ALARMS, in a stream of any length. That needs both of: ranks among all samples so far
(ranks among the clean ones alone are not uniform given these, and a long stream finds that out), and ties at random
(a sure model has many entropies of 0). Entropies are counted in BINS fixed bins, ties within a bin, so memory is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ctta.base.errors import InputError
from ctta.core.losses import entropy
from ctta.core.optim import problem_of_tensor

Predict = Callable[[Tensor], Tensor]

SAMPLES, FEWEST = 150, 20  # that are kept; with fewer than the latter nothing can be told
MOST = 1000  # clean samples that are read
TOGETHER = 50  # samples of a batch of the probe
APART = 50  # batches between two looks at the probe
DROP, HALF = 0.1, 0.5
FALSE_ALARMS = 0.01
RATE, STAKE = 1 / (8 * math.sqrt(3)), 1.8  # POEM's
DECADES, PER_DECADE = 8, 32
BINS = DECADES * PER_DECADE


@dataclass(frozen=True)
class Probe:
    """Clean samples, on the host, and how often each entropy occurs among all that were given."""

    x: Tensor  # (N, ...)
    y: Tensor | None  # (N,)
    clean: tuple[int, ...]

    def forgotten(self, predict: Predict, reference: Predict, device: torch.device) -> str:
        """What an adapter has forgotten, in words; empty if nothing."""
        parts = [part.to(device) for part in torch.split(self.x, TOGETHER)]
        own, start = (torch.cat([answer(part) for part in parts]).cpu() for answer in (predict, reference))
        target = start.argmax(1) if self.y is None else self.y
        shares = known(own, target), known(start, target)
        ranks = effective_rank(own.softmax(1)), effective_rank(start.softmax(1))
        now, then, rank, full = torch.stack([*shares, *ranks]).tolist()
        if then - now < DROP and rank >= HALF * full:
            return ""
        right = "as the source's weights do" if self.y is None else "right"
        return (
            f"of {len(self.x)} clean samples it answers {100 * now:.0f} % {right} instead of {100 * then:.0f} %, and "
            f"its predictions have an effective rank of {rank:.1f} instead of {full:.1f}"
        )


class Gatherer:
    """Takes in clean samples batch by batch, and keeps some of them at random."""

    def __init__(self) -> None:
        self.x: Tensor | None = None
        self.y: Tensor | None = None
        self.keys, self.clean = torch.empty(0, device="cpu"), [0] * BINS
        self.random = torch.Generator().manual_seed(0)

    @property
    def full(self) -> bool:
        return sum(self.clean) >= MOST

    def add(self, x: Tensor, y: Tensor | None, logits: Tensor) -> None:
        """Take in a batch, its labels if there are any, and the source model's predictions for it."""
        x = x.detach().cpu()
        if y is not None and (not isinstance(y, Tensor) or y.shape != (len(x),) or y.is_floating_point()):
            raise InputError(f"Labels of {len(x)} samples must be whole numbers of shape ({len(x)},).")
        if self.x is not None and (x.shape[1:] != self.x.shape[1:] or (y is None) != (self.y is None)):
            raise InputError("Clean samples must all have the same shape, and labels for all of them or for none.")
        keys = torch.cat([self.keys, torch.rand(len(x), generator=self.random, device="cpu")])
        kept = keys.argsort()[:SAMPLES]
        self.keys, self.x = keys[kept], (x if self.x is None else torch.cat([self.x, x]))[kept]
        if y is not None:
            y = y.detach().cpu().to(torch.int64)
            self.y = (y if self.y is None else torch.cat([self.y, y]))[kept]
        for place in bins(logits):
            self.clean[place] += 1

    def probe(self) -> Probe | None:
        """What was gathered; None if it is too little to tell anything."""
        return None if self.x is None or len(self.x) < FEWEST else Probe(self.x, self.y, tuple(self.clean))


@dataclass(frozen=True)
class Bet:
    """What has been won by betting that the stream is not like the clean samples."""

    wealth: float = 0.0  # its logarithm
    stake: float = 0.0
    squares: float = 0.0  # sum of g^2
    seen: tuple[int, ...] = (0,) * BINS  # entropies of the stream

    @property
    def won(self) -> bool:
        return self.wealth >= -math.log(FALSE_ALARMS)

    def place(self, bins: Iterable[int], draws: Iterable[float], clean: Iterable[int]) -> Bet:
        """Bet on the entropies of a batch, one after the other; draws from U(0, 1) decide on ties."""
        counts, seen = [a + b for a, b in zip(clean, self.seen, strict=True)], list(self.seen)
        wealth, stake, squares, total = self.wealth, self.stake, self.squares, sum(counts)
        for place, draw in zip(bins, draws, strict=True):
            value = (sum(counts[:place]) + draw * (counts[place] + 1)) / (total + 1) - 0.5
            wealth += math.log1p(stake * value)
            slope = value / (1 + stake * value)
            squares += slope * slope
            stake = min(STAKE, max(-STAKE, stake + RATE * slope / math.sqrt(max(squares, 1e-12))))
            counts[place] += 1
            seen[place] += 1
            total += 1
        return Bet(wealth, stake, squares, tuple(seen))


def bins(logits: Tensor) -> list[int]:
    """In which bin the entropy of each prediction lies: the bins are equal on a logarithmic scale below ln C."""
    shares = entropy(logits.cpu().to(torch.float64)) / math.log(max(2, logits.shape[1]))
    places = (shares.clamp(min=1e-300).log10() + DECADES) * PER_DECADE
    found: list[int] = places.clamp(0, BINS - 1).to(torch.int64).tolist()
    return found


def effective_rank(probabilities: Tensor) -> Tensor:
    """In how many directions predictions (N, C) differ, 0-d, from 1 to the number of classes."""
    values = torch.linalg.svdvals(probabilities.to(torch.float64))
    shares = values / values.sum().clamp(min=1e-300)
    rank: Tensor = torch.special.entr(shares).sum().exp()
    return rank


def known(logits: Tensor, target: Tensor) -> Tensor:
    """The share of answers that are the target, 0-d."""
    return (logits.argmax(1) == target).to(torch.float64).mean()


def problem(probe: Any, bet: Any, classes: int) -> str:
    """What keeps saved fields from being those of a probe, which may be None, and a bet; empty if nothing does."""
    numbers = ("wealth", "stake", "squares")
    if not isinstance(bet, Mapping) or bet.keys() != {*numbers, "seen"} or not _counts(bet["seen"]):
        return "the bet on a change is of another kind"
    if any(type(bet[name]) is not float or not math.isfinite(bet[name]) for name in numbers):
        return "the bet on a change is not finite"
    if abs(bet["stake"]) > STAKE or bet["squares"] < 0:
        return "the bet on a change has an impossible stake"
    if probe is None:
        return ""
    if not isinstance(probe, Mapping) or probe.keys() != {"x", "y", "clean"} or not _counts(probe["clean"]):
        return "the clean samples are of another kind"
    x, y = probe["x"], probe["y"]
    for name, value in (("clean samples", x), *(() if y is None else (("labels of the clean samples", y),))):
        like = torch.zeros((), dtype=torch.int64 if value is y else torch.float32, device="cpu")
        if not isinstance(value, Tensor) or not value.is_contiguous():
            return f"the {name} are no plain tensor"
        if wrong := problem_of_tensor(value, like.expand(value.shape)):
            return f"the tensor of the {name} {wrong}"
    if x.dim() < 2 or not FEWEST <= len(x) <= SAMPLES:
        return "the clean samples are too few or too many"
    if y is not None and (y.shape != (len(x),) or y.min() < 0 or y.max() >= classes):
        return "the labels of the clean samples are others than the model's"
    return ""


def _counts(values: Any) -> bool:
    return isinstance(values, tuple) and len(values) == BINS and all(type(one) is int and one >= 0 for one in values)
