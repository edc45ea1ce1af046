"""Views by cropping, and AugMix's: chains of light operations, mixed with each other and with the cropped image.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020; at its
lowest severity, 1 of 10, as MEMO uses it.

    crop       a random crop of the image padded with black by an eighth of its size, mirrored or not
    chains     three, of one to three operations each: autocontrast, equalize, posterize to 4 bits, solarize, and by
               a bilinear map with grey beyond the border: rotate (up to 3 degrees), shear (3 %), translate (1/30)
    mixture    m crop + (1 - m) sum_i w_i chain_i, w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)

Levels are whole degrees, pixels and grey values, as in the public code. Each image has a draw of its own. What differs
from that code: it fills with dark red, (128, 0, 0), where grey is meant; its shears are about the corner, ours about
the centre; and it rounds to grey values after every operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.randomness import Randomness
from ctta.core.views.images import FLIP, flip, moved

CHAINS, DEPTH = 3, 3
LOWEST = 0.1  # of a level; the highest is 1, of 10
PADDING = 1 / 8
GREY = 0.5
ROTATION, SHEAR, SHIFT, SOLARIZED = 3.0, 0.03, 1 / 30, 25.6  # at level 1: degrees, part, part of the size, grey values
LEVELS = 255


@dataclass(frozen=True)
class CropViews:
    """A random crop, mirrored or not, drawn per image."""

    limits: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        count, (height, width) = len(x), x.shape[2:]
        rows, columns = (
            (side + torch.floor(random.uniform(0, 2 * int(PADDING * length) + 1, count)).long() - int(PADDING * length))
            for side, length in ((torch.arange(length, device="cpu")[:, None], length) for length in (height, width))
        )
        rows, columns = rows.T.to(x.device, non_blocking=True), columns.T.to(x.device, non_blocking=True)  # (N, side)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        which = torch.arange(count, device=x.device)[:, None, None]
        taken = x.movedim(1, -1)[which, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]]
        return flip(taken.movedim(-1, 1) * inside[:, None], random.uniform(0, 1, count) < FLIP)


@dataclass(frozen=True)
class AugMixViews:
    """AugMix's view of a cropped image."""

    limits: ClassVar[tuple[float, float] | None] = CropViews.limits

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        x, count = CropViews()(x.clamp(0, 1), random), len(x)
        weights = -random.uniform(0, 1, CHAINS * count).clamp(min=1e-12).log().view(CHAINS, count)  # exponential draws
        weights = moved(weights / weights.sum(0), x).view(CHAINS, count, 1, 1, 1)
        share = moved(random.uniform(0, 1, count), x).view(count, 1, 1, 1)
        mixed = torch.zeros_like(x)
        for weight in weights:
            mixed = mixed + weight * chain(x, random)
        return torch.lerp(mixed, x, share)


def chain(x: Tensor, random: Randomness) -> Tensor:
    """One to three operations in a row, drawn per image."""
    depth = torch.floor(random.uniform(1, DEPTH + 1, len(x)))
    for position in range(DEPTH):
        kind = torch.floor(random.uniform(0, len(OPERATIONS), len(x)))
        level = random.uniform(LOWEST, 1, len(x)) * torch.where(random.uniform(0, 1, len(x)) < 0.5, -1.0, 1.0)
        result = x.clone()
        for number, operation in enumerate(OPERATIONS):
            rows = ((kind == number) & (position < depth)).nonzero().flatten()
            if len(rows):
                there = rows.to(x.device, non_blocking=True)
                result.index_copy_(0, there, operation(x.index_select(0, there), moved(level[rows], x)))
        x = result
    return x


def autocontrast(x: Tensor, level: Tensor) -> Tensor:
    """Stretch each channel to the full range; one of a single value stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalize(x: Tensor, level: Tensor) -> Tensor:
    """Give each channel a flat histogram of grey values."""
    value = (x * LEVELS).round().long().flatten(2)
    counts = torch.zeros(*x.shape[:2], LEVELS + 1, dtype=x.dtype, device=x.device)
    counts.scatter_add_(2, value, torch.ones_like(value, dtype=x.dtype))
    last = counts.gather(2, value.amax(2, keepdim=True))  # pixels of the brightest value
    step = torch.floor((value.shape[2] - last) / LEVELS)
    table = torch.floor((counts.cumsum(2) - counts + torch.floor(step / 2)) / step.clamp(min=1)).clamp(0, LEVELS)
    found = torch.where(step > 0, table.gather(2, value) / LEVELS, x.flatten(2))
    return found.view_as(x)


def posterize(x: Tensor, level: Tensor) -> Tensor:
    """Keep the four highest bits."""
    return torch.floor((x * LEVELS).round() / 16) * 16 / LEVELS


def solarize(x: Tensor, level: Tensor) -> Tensor:
    """Invert what is nearly white."""
    limit = (LEVELS + 1 - torch.floor(SOLARIZED * level.abs())).view(-1, 1, 1, 1)
    return torch.where((x * LEVELS).round() >= limit, 1 - x, x)


def rotate(x: Tensor, level: Tensor) -> Tensor:
    angle = torch.trunc(ROTATION * level) * (math.pi / 180)
    cos, sin, nothing = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return mapped(x, cos, -sin, nothing, sin, cos, nothing)


def shear_x(x: Tensor, level: Tensor) -> Tensor:
    one, nothing = torch.ones_like(level), torch.zeros_like(level)
    return mapped(x, one, SHEAR * level, nothing, nothing, one, nothing)


def shear_y(x: Tensor, level: Tensor) -> Tensor:
    one, nothing = torch.ones_like(level), torch.zeros_like(level)
    return mapped(x, one, nothing, nothing, SHEAR * level, one, nothing)


def translate_x(x: Tensor, level: Tensor) -> Tensor:
    one, nothing, pixels = torch.ones_like(level), torch.zeros_like(level), torch.trunc(SHIFT * x.shape[3] * level)
    return mapped(x, one, nothing, pixels * 2 / x.shape[3], nothing, one, nothing)


def translate_y(x: Tensor, level: Tensor) -> Tensor:
    one, nothing, pixels = torch.ones_like(level), torch.zeros_like(level), torch.trunc(SHIFT * x.shape[2] * level)
    return mapped(x, one, nothing, nothing, nothing, one, pixels * 2 / x.shape[2])


def mapped(x: Tensor, *entries: Tensor) -> Tensor:
    """Images under an affine map each, six entries (N,) from output to input, in halves of the size; grey beyond."""
    grid = F.affine_grid(torch.stack(entries, 1).view(-1, 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x - GREY, grid, align_corners=False) + GREY


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    autocontrast,
    equalize,
    rotate,
    solarize,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    posterize,
)
