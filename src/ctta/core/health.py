"""Whether what an adapter has learned does harm, judged without labels.

There are two predictions for a batch: the adapter's, and the reference's, which is that of the source's weights under
the same statistics. An adapter that is better than the reference disagrees with it where the reference errs, so about
as often as the reference doubts itself. One that has broken disagrees far more often. c is the reference's confidence:

    excess      = [labels differ] - (1 - c) - SLACK            per sample
    evidence    <- max(0, evidence + sum of the excess)        per batch: the CUSUM of Page (1954)
    harmful     if evidence > LIMIT; watched if it is more than a sixth of that

If labels differ with a probability of at most 1 - c, Hoeffding's lemma makes exp(8 SLACK evidence) a supermartingale
between its restarts at 0, and so P(alarm within n samples) <= n exp(-8 SLACK LIMIT). LIMIT makes that 1 % for 20,000
samples. It counts samples, not batches, so it is the same for batches of 1 and of 200, and for classes that come in any
order, because both predictions see the same samples.

Harm that is within the reference's doubt does not show in single labels, but it has a direction: learning without
labels makes what is answered often more frequent. On average over about the last MEMORY samples

    narrowing   = (entropy of the reference's mean prediction - that of the adapter's) / log(classes)

is below 0 if learning undoes the reference's favourite answers, and above 0 if it makes its own. The adapter is watched
if it is more than NARROW. Classes that come in any order have no part in it: both predictions see the same samples.

Statistics may do harm too, and the reference has the same. The unadapted model, with the source's own statistics, is

    heard       if it is surer than the reference on average, and is not refuted: labels of the two differ by no more
                than REFUTED beyond its own doubt

The answer is then the mean of both probabilities. On clean and sorted streams that is as good as the unadapted model,
and often better than either, since they err on different samples. A model that is sure of itself and wrong, as under
strong noise, is refuted by how often it is contradicted.

The constants were chosen on the four corruptions that are in no table, see `results/README.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ctta.core.optim import problem_of_tensor

SLACK = 0.1  # disagreement beyond the reference's doubt that is no evidence, per sample
FALSE_ALARMS, SAMPLES = 0.01, 20_000  # at most this rate of false alarms in so many samples
LIMIT = math.log(SAMPLES / FALSE_ALARMS) / (8 * SLACK)
WATCH = LIMIT / 6
MEMORY = 300  # samples in the mean predictions
REFUTED = 0.2  # disagreement beyond its doubt, at which the unadapted model is not heard
NARROW = 0.0025  # of the narrowing, beyond which the adapter is watched


def excess(logits: Tensor, reference: Tensor) -> Tensor:
    """How much more often the labels differ than the reference doubts, summed over the batch; 0-d."""
    confidence, label = reference.softmax(1).max(1)
    return ((logits.argmax(1) != label).to(confidence.dtype) - (1 - confidence) - SLACK).sum()


@dataclass(frozen=True)
class Means:
    """The mean predictions, (classes,) each: the adapter's and the reference's."""

    own: Tensor
    reference: Tensor

    @classmethod
    def uniform(cls, classes: int) -> Means:
        """Before any sample has been seen."""
        return cls(*torch.full((2, classes), 1 / classes))

    def with_batch(self, logits: Tensor, reference: Tensor) -> Means:
        """The means after another batch; older samples count less and less."""
        new = 1 - math.exp(-len(logits) / MEMORY)
        pairs = ((self.own, logits), (self.reference, reference))
        return Means(*(mean.to(seen.device).lerp(seen.float().softmax(1).mean(0), new) for mean, seen in pairs))

    def narrowing(self) -> Tensor:
        """How much fewer classes the adapter answers than the reference, from -1 to 1; 0-d."""
        entropies: Tensor = torch.special.entr(torch.stack([self.reference, self.own])).sum(1)
        return (entropies[0] - entropies[1]) / math.log(max(2, len(self.own)))


def heard(reference: Tensor, source: Tensor) -> Tensor:
    """Whether the unadapted model has a say in the answer; bool, 0-d."""
    expected, own = reference.softmax(1).amax(1).mean(), source.softmax(1).amax(1).mean()
    differ = (reference.argmax(1) != source.argmax(1)).to(own.dtype).mean()
    return (own > expected) & (differ - (1 - own) <= REFUTED)


def signs(logits: Tensor, reference: Tensor) -> dict[str, Tensor]:
    """What a person would look at, each 0-d: how the two predictions for a batch differ."""
    probability, expected = logits.softmax(1), reference.softmax(1)
    label, other = logits.argmax(1), reference.argmax(1)
    return {
        "disagreement": (label != other).to(logits.dtype).mean(),
        "classes": class_count(label, logits.shape[1]),
        "reference_classes": class_count(other, logits.shape[1]),
        "reference_confidence": expected.amax(1).mean(),
        "confidence_gap": probability.amax(1).mean() - expected.amax(1).mean(),
    }


def class_count(label: Tensor, classes: int) -> Tensor:
    """How many classes there are among the labels, 0-d."""
    return label.new_zeros(classes).index_fill(0, label, 1).sum()


def distance(weights: list[Tensor], source: list[Tensor]) -> Tensor:
    """How far weights have moved, over the length of the source's; 0-d."""
    moved = torch.nn.utils.get_total_norm([a.detach() - b.detach() for a, b in zip(weights, source, strict=True)])
    return moved / torch.nn.utils.get_total_norm([b.detach() for b in source]).clamp(min=1e-12)


def problem_of_means(means: Any, classes: int) -> str:
    """What keeps saved fields from being those of mean predictions, which may be None; empty if nothing does."""
    if means is None:
        return ""
    if not isinstance(means, Mapping) or means.keys() != {"own", "reference"}:
        return "the mean predictions are of another kind"
    problems = (problem_of_tensor(value, torch.zeros(classes)) for value in means.values())
    return next((f"a mean prediction {problem}" for problem in problems if problem), "")
