"""How far a batch's statistics are believed: the equations of `statistics="auto"`.

A batch's statistics differ from the source's for three reasons: the domain has shifted, a few images are not all
images, and the classes of a batch are not those of the source data. Only the first is to be followed. For each layer:

    spread      how much images differ from one another: the variance, over images, of an image's own mean
    shift       how far the batch's mean is from the source's, squared
    likeness    the probability that two images of the batch are of one class, beyond chance: 1 / N for N images of
                different classes, 1 for a single image, for one class, and if nothing is known
    composed    the shift that N images of such classes show without any shift of the domain
                = k spread, k = CLASS_PART likeness / (1 - CLASS_PART likeness)
    excess      (shift - composed) / spread, at least 0
    share       excess / (shift / spread + doubt)

    statistics  = (1 - share) source + share batch

k is the law of total variance: if classes explain the part c of how images differ, then N images of likeness p show a
shift of c p and a spread of 1 - c p. So one class at a time, one image at a time and small batches leave the source's
statistics as they are unless the shift is larger than any class could explain. Early and middle layers, in which a
corruption shows and a class hardly does, follow earlier than the last ones. Shift and spread are averages over the
layer's channels, in units of the source's variance, and at most so large in each channel. The variance has a share of
its own, by the same rule: there an image's own value is its mean square about the source's mean. It is interpolated on
a logarithmic scale, because a variance that falls to a hundredth matters as one that rises hundredfold. A layer with a
single value per image and channel, as after pooling, keeps the source's statistics: there is nothing in it but what the
images are, and classes explain nearly all of that. So does every layer if samples are not images: classes explain
nearly all of how point clouds differ, and their batch statistics lose more than they gain (`results/README.md`).

Likeness and doubt are found by predicting the batch with the source model, first under the most cautious shares, those
of likeness 1: on a clean stream they are the source's own predictions. What the layers show together is

    evidence    the excess that a tenth of the layers exceed. Some networks' own statistics do not fit clean images,
                but not in many layers
    doubt       DOUBT / (1 + (evidence / CLEAR)^2): without evidence a layer's shift is hardly followed, with it fully
    likeness    of the predictions, and its distance from 1 / N divided by 1 + (evidence / STRONG)^4: far from the
                source, predictions become the same whatever the classes are, and the source's statistics are wrong

Of a large batch the second half is predicted under what the first half gave. That is one pass more per batch.

A batch of fewer than WINDOW images is too small for all this, so the recent images count too, as far as the window has
room for them: their statistics and predictions are kept as sums, of which each batch takes over a part. N is then the
number of images in the window, and single images of one domain are predicted as a small batch is. Nothing else is
remembered from batch to batch, so no stream can spoil the shares for long.

The source's statistics belong to the source's weights. Weights that have learned give other activations, so the shares
are found in the source network alone, in one pass more, and what they come to is carried over to other weights

    correction  = (mean - batch mean) / batch deviation, and variance / batch variance, in the source network
    mean        = batch mean + correction batch deviation, variance = batch variance correction, in the adapted one

For the source's weights that changes nothing. A pass of other samples than the batch's is blended by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

CLASS_PART = 0.95  # of how images differ in a layer, the part that their classes explain, at most
DOUBT, CLEAR, STRONG = 2.0, 0.4, 3.0  # in units of the spread, see above
AT_HOME = 0.9 * DOUBT  # with more doubt than this there is no sign that the domain has shifted
WINDOW = 8  # images: of smaller batches, the recent ones count too
LARGE = 32  # images, of which a half is enough to see whether they are alike
PRIOR_MEAN, PRIOR_SQUARE = 0.1, 0.3  # the spreads before any image is seen; they count as one image
# The largest spreads and shift of a channel, so that one that was nearly constant in the source data is not everything.
WIDEST_MEAN, WIDEST_SQUARE, LARGEST_SHIFT = 1.0, 3.0, 9.0


@dataclass(frozen=True)
class Belief:
    """What is known of a batch: how much alike its images are, and how much its shifts are doubted; each 0-d."""

    likeness: Tensor | float = 1.0
    doubt: Tensor | float = DOUBT


CAUTIOUS = Belief()
NOTHING = Belief(doubt=math.inf)  # no shift is followed at all


class Correction(NamedTuple):
    """By how much statistics differ from the batch's, in units of its deviation and of its variance; (C,) each."""

    mean: Tensor
    variance: Tensor
    samples: int  # in the batch; for another number it is not meant

    @classmethod
    def between(
        cls, batch: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], eps: float, samples: int
    ) -> Correction:
        """What leads from the batch's mean and variance to the wanted ones."""
        scale = batch[1] + eps
        return cls((wanted[0] - batch[0]) / scale.sqrt(), (wanted[1] + eps) / scale, samples)

    def of(self, mean: Tensor, variance: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """The batch's mean and variance, corrected."""
        scale = variance + eps
        return mean + self.mean * scale.sqrt(), self.variance * scale - eps


def moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance over these dimensions. On a CPU `torch.var_mean` takes many times as long."""
    mean = x.mean(dims, keepdim=True)
    return mean.squeeze(dims), (x - mean).square().mean(dims)


def probes(x: Tensor) -> list[Tensor]:
    """What is predicted, one after the other, to form a belief: as many images as the batch has."""
    return [x] if len(x) < LARGE else [x[::2], x[1::2]]


def beside(recent: Tensor, n: int) -> Tensor:
    """What sums over the recent images still count beside a batch of n: a window holds so many in all."""
    return recent * (max(0, WINDOW - n) / recent[0].clamp(min=WINDOW))


def believe(predicted: Tensor, excesses: list[Tensor], n: Tensor | float) -> Belief:
    """What predictions (see `predictions`) of n images, and the excess in each layer, say about them."""
    evidence = torch.stack(excesses).float().quantile(0.9)
    alike = 1 / n + (likeness(predicted) - 1 / n).clamp(min=0) / (1 + (evidence / STRONG) ** 4)
    return Belief(alike, DOUBT / (1 + (evidence / CLEAR).square()))


def predictions(logits: Tensor) -> Tensor:
    """Sums over images, (2 + C,): their number, the squares of their probabilities, and the probabilities."""
    probabilities = logits.softmax(1)
    each = [torch.ones_like(probabilities[:, :1]), probabilities.square().sum(1, keepdim=True), probabilities]
    return torch.cat(each, 1).sum(0)


def likeness(predicted: Tensor) -> Tensor:
    """The probability that two images are of one class, beyond chance; 0-d.

    Sum of squares of the mean prediction, over that of the single ones: predictions that are unsure tell nothing about
    classes, and images with the same unsure prediction count as alike.
    """
    n, squares, probabilities = predicted[0], predicted[1], predicted[2:]
    same = probabilities.square().sum() / (squares * n)
    chance = 1 / max(len(probabilities), 2)
    return ((same - chance) / (1 - chance)).clamp(1 / n, torch.ones_like(n))


def share(shift: Tensor, spread: Tensor, belief: Belief) -> tuple[Tensor, Tensor]:
    """The share of the batch in the statistics, from 0 to 1, and the excess of the shift."""
    alike = CLASS_PART * belief.likeness
    excess = (shift / spread - alike / (1 - alike)).clamp(min=0)
    return excess / (shift / spread + belief.doubt), excess


@dataclass(frozen=True)
class Gathered:
    """What images are in a layer, each in units of the source's statistics: its mean m, its mean square s."""

    rows: Tensor  # (5, C): sums over images of 1, m, m^2, s, s^2
    samples: int  # of these images are in the batch; the others are recent ones
    mean: Tensor  # (C,): the source's
    variance: Tensor
    eps: float

    @classmethod
    def of(cls, x: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Gathered:
        """The images of a layer's input, (N, C, ...)."""
        own_mean, own_variance = moments(x, tuple(range(2, x.dim())))
        means = (own_mean - mean) / (variance + eps).sqrt()
        squares = own_variance / (variance + eps) + means.square()
        parts = torch.stack([torch.ones_like(means), means, means.square(), squares, squares.square()])
        return cls(parts.sum(1), len(x), mean, variance, eps)

    def with_recent(self, rows: Tensor) -> Gathered:
        """With recent images beside them, as far as there is room."""
        return replace(self, rows=self.rows + beside(rows, self.samples))

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of all images together, (C,) each."""
        _, means, _, squares, _ = self.averages
        scale = self.variance + self.eps
        return self.mean + means * scale.sqrt(), (squares - means.square()).clamp(min=0) * scale

    def spreads(self) -> tuple[Tensor, Tensor]:
        """How much images differ in their means, and in their mean squares; 0-d each."""
        _, means, of_means, squares, of_squares = self.averages
        return (
            (of_means - means.square() + PRIOR_MEAN / self.rows[0]).clamp(0, WIDEST_MEAN).mean(),
            (of_squares - squares.square() + PRIOR_SQUARE / self.rows[0]).clamp(0, WIDEST_SQUARE).mean(),
        )

    @property
    def averages(self) -> Tensor:
        return self.rows / self.rows[0]


class Blended(NamedTuple):
    """Statistics between the source's own and those of the images."""

    mean: Tensor
    variance: Tensor
    excess: Tensor  # 0-d
    correction: Correction | None  # None: the source's own, whatever the weights are

    @classmethod
    def source(cls, mean: Tensor, variance: Tensor) -> Blended:
        """Nothing of the images'."""
        return cls(mean, variance, mean.new_zeros(()), None)


def blend(images: Gathered, belief: Belief) -> Blended:
    """Statistics for a layer of the source network."""
    (own_mean, own_variance), mean, variance, eps = images.statistics(), images.mean, images.variance, images.eps
    log_source, log_own = (variance + eps).log(), (own_variance + eps).log()
    with torch.no_grad():
        of_means, of_squares = images.spreads()
        shift = ((own_mean - mean).square() / (variance + eps)).clamp(max=LARGEST_SHIFT).mean()
        mean_share, mean_excess = share(shift, of_means, belief)
        shift = ((own_variance - variance) / (variance + eps)).square().clamp(max=LARGEST_SHIFT).mean()
        variance_share, variance_excess = share(shift, of_squares, belief)
    blended = mean.lerp(own_mean, mean_share), log_source.lerp(log_own, variance_share).exp() - eps
    correction = Correction.between((own_mean, own_variance), blended, eps, images.samples)
    return Blended(*blended, mean_excess.maximum(variance_excess), correction)
