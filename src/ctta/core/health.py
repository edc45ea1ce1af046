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

Statistics may do harm too, and the reference has the same. The unadapted model, with the source's own statistics, says
something else, and one of the two has to be believed. Over about the last FEW samples

    surer       = confidence of the unadapted model - c, on average
    dissent     = how often labels of the two differ, beyond the reference's doubt 1 - c: a model that is sure of itself
                and wrong, as under strong noise, is contradicted by a reference that is sure too
    one-sided   if over the last MANY samples the reference has predicted less than BROAD of the classes
                (`prior.breadth`): the statistics of such a stream are those of its classes, not of its domain

The unadapted model is contradicted if the dissent is more than CONTRADICTED, unless the reference is lost itself: its
confidence is less than the part LOST of the way from chance to certainty. On a one-sided stream it takes a dissent of
more than REFUTED. The unadapted model answers alone if it is surer by more than MARGIN and not contradicted. On a
one-sided stream it also does if the dissent is small and the reference not surer by more than MARGIN. If it is surer
and not contradicted, but not clearly, the answer is the mean of both probabilities. Else it has no say.

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
from ctta.core.prior import breadth

SLACK = 0.1  # disagreement beyond the reference's doubt that is no evidence, per sample
FALSE_ALARMS, SAMPLES = 0.01, 20_000  # at most this rate of false alarms in so many samples
LIMIT = math.log(SAMPLES / FALSE_ALARMS) / (8 * SLACK)
WATCH = LIMIT / 6
MEMORY = 300  # samples in the mean predictions
NARROW = 0.0025  # of the narrowing, beyond which the adapter is watched
FEW, MANY = 64, 1000  # samples over which the unadapted model and the reference are compared, and the classes counted
MARGIN = 0.08  # of confidence, by which one of them is clearly surer
CONTRADICTED, REFUTED = 0.3, 0.6  # dissent beyond which the unadapted model is not believed: in general, if one-sided
LOST = 4 / 9  # of the way from chance to certainty, 0.5 of 10 classes: with a lower mean confidence a model is lost
BROAD = 0.75  # of the classes: a stream with fewer is one-sided


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
        return cls(*torch.full((2, classes), 1 / classes, dtype=torch.float32, device="cpu"))

    def with_batch(self, logits: Tensor, reference: Tensor) -> Means:
        """The means after another batch; older samples count less and less."""
        new = 1 - math.exp(-len(logits) / MEMORY)
        pairs = ((self.own, logits), (self.reference, reference))
        return Means(*(mean.to(seen.device).lerp(seen.float().softmax(1).mean(0), new) for mean, seen in pairs))

    def narrowing(self) -> Tensor:
        """How much fewer classes the adapter answers than the reference, from -1 to 1; 0-d."""
        entropies: Tensor = torch.special.entr(torch.stack([self.reference, self.own])).sum(1)
        return (entropies[0] - entropies[1]) / math.log(max(2, len(self.own)))


@dataclass(frozen=True)
class Standing:
    """How the unadapted model and the reference compare along the stream."""

    samples: Tensor  # so many were seen, 0-d
    signs: Tensor  # (3,): confidence of the unadapted model, of the reference, and how often their labels differ
    mix: Tensor  # (classes,): the reference's mean prediction

    @classmethod
    def start(cls, classes: int) -> Standing:
        """Before any sample has been seen."""
        return cls(*(torch.zeros(shape, dtype=torch.float32, device="cpu") for shape in ((), (3,), (classes,))))

    def with_batch(self, reference: Tensor, source: Tensor) -> Standing:
        """After another batch: at first all samples count alike, then older ones less and less."""
        expected, own = reference.float().softmax(1), source.float().softmax(1)
        differ = (reference.argmax(1) != source.argmax(1)).to(own.dtype).mean()
        signs = torch.stack([own.amax(1).mean(), expected.amax(1).mean(), differ])
        samples = self.samples.to(own.device) + len(reference)
        few, many = ((len(reference) / samples.clamp(max=memory)).clamp(max=1) for memory in (FEW, MANY))
        mix = self.mix.to(own.device).lerp(expected.mean(0), many)
        return Standing(samples, self.signs.to(own.device).lerp(signs, few), mix)

    def heard(self) -> Tensor:
        """The weight of the unadapted model in the answer: 1, 0.5 or 0; 0-d."""
        own, expected, differ = self.signs
        surer, dissent = own - expected, differ - (1 - expected)
        one_sided = breadth(self.mix, self.samples.clamp(max=MANY)) < BROAD
        agreed = (dissent <= CONTRADICTED) | is_lost(expected, len(self.mix))
        believed = agreed | one_sided & (dissent <= REFUTED)
        alone = believed & (surer > MARGIN) | agreed & one_sided & (surer > -MARGIN)
        weight = torch.where(alone, 1.0, torch.where(agreed & (surer > 0), 0.5, 0.0))
        return torch.where(differ > 0, weight, 0.0)  # if they never differ there is nothing to choose


def is_lost(confidence: Any, classes: int) -> Any:
    """Whether this mean confidence says that the model is not at home here, adapted or not."""
    return confidence < LOST + (1 - LOST) / classes


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


def problem_of_averages(saved: Any, like: Means | Standing) -> str:
    """What keeps saved fields from being averages of this kind, which may be None; empty if nothing does."""
    if saved is None:
        return ""
    wanted = vars(like)
    if not isinstance(saved, Mapping) or saved.keys() != wanted.keys():
        return "the averages of the predictions are of another kind"
    problems = (problem_of_tensor(saved[name], tensor) for name, tensor in wanted.items())
    return next((f"an average of the predictions {problem}" for problem in problems if problem), "")
