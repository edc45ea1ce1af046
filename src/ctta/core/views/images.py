"""CoTTA's random view of an image batch, (N, 3, H, W) or (N, 1, H, W) in [0, 1].

In order: five colour jitters in random order (brightness, contrast, saturation, hue, gamma), each clipped; edge padding
by half the size; a random affine map (rotation, whole-pixel shift, scale); a 5x5 Gaussian blur; centre crop; flip;
noise; clip.

Padding, affine map, crop and flip are one border-padded `grid_sample`: on square images of 22 px and more the crop
never reaches past the padding, so the padding is the border value. (On smaller or oblong ones the released code would
read black there at extreme draws; we read the border.) The sample is two pixels wider on each side, which the blur
then eats.

Three more kinds of view share the draws and the operations: the clean one (no blur, no noise, mirrored padding), and
the weak and the strong one of contrastive learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.randomness import Randomness

Draw = Literal["batch", "sample"]

BRIGHTNESS = (0.6, 1.4)
CONTRAST = (0.7, 1.3)
SATURATION = (0.5, 1.5)
HUE = (-0.06, 0.06)  # of the whole circle
GAMMA = (0.7, 1.3)
FULL = (BRIGHTNESS, CONTRAST, SATURATION, HUE, GAMMA)
ROTATION = 15.0  # degrees either way
SHIFT = 1 / 16  # of the padded size, either way, to the nearest pixel
SCALE = (0.9, 1.1)
BLUR = (0.001, 0.5)  # sigma
FLIP = 0.5  # probability
NOISE = 0.005  # standard deviation
MARGIN = 2  # half the width of the blur kernel
GREY = (0.2989, 0.587, 0.114)

# The strong view: brightness, contrast, saturation and hue by these, each part with its probability.
STRONG = ((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1))
STRONG_JITTER, STRONG_GREY, STRONG_BLUR = 0.8, 0.2, 0.5
STRONG_SIGMA = (0.1, 2.0)
STRONG_MARGIN = 6  # three times the largest sigma


@dataclass(frozen=True)
class ImageViews:
    """The view as released: one draw for the whole batch (`draw="batch"`), or one for each image (`draw="sample"`).

    Only the noise is drawn for each pixel either way. A `clean` view has neither blur nor noise, and its padding
    mirrors the image instead of drawing its border out.
    """

    draw: Draw = "batch"
    clean: bool = False
    limits: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        return self.at_once(x, [random])

    def many(self, x: Tensor, randoms: Sequence[Randomness]) -> Tensor:
        """A view from each, one after the other in one tensor; each draws as if it were the only one."""
        if self.draw == "batch" and x.device.type == "cpu":
            # If the whole batch has one order of jitters nothing is gathered, which is faster on a CPU.
            return torch.cat([self(x, random) for random in randoms])
        return self.at_once(x, randoms)

    def at_once(self, x: Tensor, randoms: Sequence[Randomness]) -> Tensor:
        """All of them in the same operations."""
        rows, count, (height, width) = _rows(self.draw, x), len(x) * len(randoms), x.shape[2:]
        noise = x.new_empty(0 if self.clean else count, *x.shape[1:])
        drawn = []
        for number, random in enumerate(randoms):
            order, factors = _draw_jitter(random, rows)
            grid, sigma = _draw_geometry(random, rows, height, width, 0 if self.clean else MARGIN)
            drawn.append((order, factors, grid, sigma))
            noise[number * len(x) :][: len(x)].normal_(0, NOISE, generator=random.device)
        order, factors, grid, sigma = (for_each(torch.cat(parts), count) for parts in zip(*drawn, strict=True))
        x = x.clamp(0, 1)
        x = jitter(x if len(randoms) == 1 else x.repeat(len(randoms), 1, 1, 1), order, factors)
        grid = moved(grid, x).expand(count, -1, -1, -1)
        if self.clean:
            return mirrored_sample(x, grid)
        x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
        return noise.add_(blur(x, moved(sigma, x))).clamp_(0, 1)


@dataclass(frozen=True)
class WeakViews:
    """Mirrored or not, half and half."""

    draw: Draw = "sample"
    limits: ClassVar[tuple[float, float] | None] = ImageViews.limits

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        return flip(x, _drawn(random, FLIP, _rows(self.draw, x)))


@dataclass(frozen=True)
class StrongViews:
    """Contrastive learning's: four jitters in random order, grey, blur and flip, each part at times only."""

    draw: Draw = "sample"
    limits: ClassVar[tuple[float, float] | None] = ImageViews.limits

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        rows = _rows(self.draw, x)
        order, factors = _draw_jitter(random, rows, STRONG)
        nothing = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=factors.dtype, device="cpu")
        factors = torch.where(_drawn(random, STRONG_JITTER, rows)[:, None], factors, nothing)
        x = jitter(x.clamp(0, 1), order, factors)
        x = torch.where(_drawn(random, STRONG_GREY, rows).to(x.device, non_blocking=True).view(-1, 1, 1, 1), grey(x), x)
        sigma = torch.where(_drawn(random, STRONG_BLUR, rows), random.uniform(*STRONG_SIGMA, rows), BLUR[0])
        x = blur(F.pad(x, (STRONG_MARGIN,) * 4, mode="replicate"), moved(sigma, x), STRONG_MARGIN)
        return flip(x, _drawn(random, FLIP, rows))


def moved(drawn: Tensor, x: Tensor) -> Tensor:
    """What was drawn on the host, with the device and dtype of the images; the host does not wait for the copy."""
    return drawn.to(x, non_blocking=True)


def for_each(rows: Tensor, count: int) -> Tensor:
    """One row per sample, from one row per view; a single row is for all samples."""
    return rows if len(rows) == 1 else rows.repeat_interleave(count // len(rows), 0)


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Scale towards black or white."""
    return (x * factor).clamp_(0, 1)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance to the mean grey of the image."""
    mean = grey(x.mean((2, 3), keepdim=True))
    return torch.lerp(mean, x, factor).clamp_(0, 1)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance of each pixel to its own grey."""
    return x if x.shape[1] == 1 else torch.lerp(grey(x), x, factor).clamp_(0, 1)


def hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the colour circle by `shift` of a whole turn; value and chroma stay."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    high = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = high - low
    # The hue in sixths of the circle, times chroma: nothing to divide by, so grey needs no care.
    after_green = torch.add(blue - red, chroma, alpha=2)
    after_blue = torch.add(red - green, chroma, alpha=4)
    turn = torch.where(high == red, green - blue, torch.where(high == green, after_green, after_blue))
    turn = turn.addcmul_(chroma, 6 * shift)
    # A channel at offset n is: low + chroma * clamp(||sector - n| - 3| - 1, 0, 1), for shifts up to a third.
    offsets = 2 * torch.arange(3, dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
    distance = torch.addcmul(turn, chroma, offsets, value=-1).abs_().sub_(chroma, alpha=3).abs_().sub_(chroma)
    return torch.minimum(distance.clamp_(min=0), chroma).add_(low)


def gamma(x: Tensor, exponent: Tensor) -> Tensor:
    """Bend the tone curve."""
    return x**exponent


JITTERS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (brightness, contrast, saturation, hue, gamma)


def jitter(x: Tensor, order: Tensor, factors: Tensor) -> Tensor:
    """Apply the first K jitters in `order` (R, K) with `factors` (R, K); R is 1, or one row per image."""
    kinds = order.shape[1]
    values = moved(factors, x).view(len(factors), kinds, 1, 1, 1)
    if len(order) == 1:
        for kind in order[0].tolist():
            x = JITTERS[kind](x, values[:, kind])
        return x
    x = x.clone()
    for slot in range(kinds):
        for kind, apply in enumerate(JITTERS[:kinds]):
            rows = (order[:, slot] == kind).nonzero().flatten().to(x.device, non_blocking=True)
            x.index_copy_(0, rows, apply(x.index_select(0, rows), values[rows, kind]))
    return x


def grey(x: Tensor) -> Tensor:
    """(N, 3, H, W) to its luma, (N, 1, H, W)."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    return (red * GREY[0]).add_(green, alpha=GREY[1]).add_(blue, alpha=GREY[2])


def blur(x: Tensor, sigma: Tensor, margin: int = MARGIN) -> Tensor:
    """Separable Gaussian with one sigma per row (R,), `margin` taps to each side, by which the result is smaller."""
    taps = torch.exp(-0.5 * (torch.arange(margin + 1, dtype=x.dtype, device=x.device) / sigma[:, None]) ** 2)  # (R, T)
    taps = taps / (taps[:, :1] + 2 * taps[:, 1:].sum(1, keepdim=True))
    centre, *sides = taps.view(-1, margin + 1, 1, 1, 1).unbind(1)
    for dim in (2, 3):
        size = x.shape[dim] - 2 * margin
        total = x.narrow(dim, margin, size) * centre
        for away, weight in enumerate(sides, start=1):
            total.addcmul_(x.narrow(dim, margin - away, size) + x.narrow(dim, margin + away, size), weight)
        x = total
    return x


def flip(x: Tensor, which: Tensor) -> Tensor:
    """Flip the images left to right if `which` (R,) is set; R is 1, or one row per image."""
    return torch.where(which.to(x.device, non_blocking=True).view(-1, 1, 1, 1), x.flip(3), x)


def mirrored_sample(x: Tensor, grid: Tensor) -> Tensor:
    """Read a grid of `sampling_grid`; beyond the border, the image is mirrored about its outermost pixels."""
    height, width = x.shape[2:]
    scale = torch.tensor([width / max(width - 1, 1), height / max(height - 1, 1)], dtype=grid.dtype, device="cpu")
    return F.grid_sample(x, grid * moved(scale, grid), padding_mode="reflection", align_corners=True)


def sampling_grid(
    angle: Tensor, shift: Tensor, scale: Tensor, flip: Tensor, height: int, width: int, margin: int = MARGIN
) -> Tensor:
    """Where each output pixel reads its input, (R, H + 2 margin, W + 2 margin, 2) for `grid_sample`.

    The image turns by `angle` (radians) about its centre, grows by `scale` and moves by `shift` pixels (R, 2); the
    result is flipped if `flip` is set.
    """
    rows = torch.arange(height + 2 * margin, device=angle.device).to(angle.dtype) - margin - (height - 1) / 2
    columns = torch.arange(width + 2 * margin, device=angle.device).to(angle.dtype) - margin - (width - 1) / 2
    sign = torch.where(flip, -1.0, 1.0).to(angle.dtype)
    x = columns[None, None, :] * sign[:, None, None] - shift[:, 0, None, None]  # (R, 1, W')
    y = rows[None, :, None] - shift[:, 1, None, None]  # (R, H', 1)
    cos, sin = (angle.cos() / scale)[:, None, None], (angle.sin() / scale)[:, None, None]
    return torch.stack([(cos * x + sin * y) * (2 / width), (cos * y - sin * x) * (2 / height)], -1)


def _rows(draw: Draw, x: Tensor) -> int:
    return 1 if draw == "batch" else len(x)


def _drawn(random: Randomness, probability: float, rows: int) -> Tensor:
    return random.uniform(0, 1, rows) < probability


def _draw_jitter(
    random: Randomness, rows: int, ranges: tuple[tuple[float, float], ...] = FULL
) -> tuple[Tensor, Tensor]:
    """The order of the jitters and their factors, one row each."""
    kinds = len(ranges)
    order = random.uniform(0, 1, kinds * rows).view(rows, kinds).argsort(1)
    return order, torch.stack([random.uniform(*limits, rows) for limits in ranges], 1)


def _draw_geometry(random: Randomness, rows: int, height: int, width: int, margin: int) -> tuple[Tensor, Tensor]:
    """The sampling grid and the blur's sigma, one row each."""
    angle = random.uniform(-ROTATION, ROTATION, rows) * (math.pi / 180)
    reach = [SHIFT * (size + 2 * (size // 2)) for size in (width, height)]
    shift = torch.stack([random.uniform(-limit, limit, rows).round() for limit in reach], 1)
    scale = random.uniform(*SCALE, rows)
    sigma = random.uniform(*BLUR, rows)
    return sampling_grid(angle, shift, scale, _drawn(random, FLIP, rows), height, width, margin), sigma
