"""Views of point clouds, (N, P, 3) with y up: a random rotation, then a random translation; scale and jitter if asked.

    rotation      degrees either way, about each of the three axes, uniform
    translation   either way, along each axis, uniform
    scale         fraction either way: sizes are multiplied by U(1 - scale, 1 + scale), about the origin
    jitter        each coordinate moves by N(0, jitter), three deviations at most

The paper names rotation and translation and gives no ranges; these are ours. Rotation is about all three axes, so that
it covers a tilted sensor; the translation is small against a cloud whose longest side is 2. Scale and jitter are off
unless they are given: `views=CloudViews("sample", scale=0.1, jitter=0.01)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ctta.base.errors import ConfigError
from ctta.base.randomness import Randomness
from ctta.core.views.images import Draw, for_each, moved

ROTATION = 10.0  # degrees
TRANSLATION = 0.1
MOST_JITTER = 3  # deviations that a coordinate is jittered at most


@dataclass(frozen=True)
class CloudViews:
    """Random rotation and translation. `draw` says whether the batch shares one draw or each cloud has its own.

    Jitter is drawn for each point in any case.
    """

    draw: Draw = "batch"
    rotation: float = ROTATION
    translation: float = TRANSLATION
    scale: float = 0.0
    jitter: float = 0.0
    limits: ClassVar[tuple[float, float] | None] = None  # clouds may lie anywhere

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in ("rotation", "translation", "scale", "jitter")}
        bad = [f"{name} is {value}" for name, value in values.items() if not 0 <= value < math.inf]
        bad += [f"scale is {self.scale}, which turns clouds inside out"] if self.scale >= 1 else []
        if bad:
            raise ConfigError(f"Ranges of cloud views must be 0 or more, and scale below 1. Here {', '.join(bad)}.")

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        return self.many(x, [random])

    def many(self, x: Tensor, randoms: Sequence[Randomness]) -> Tensor:
        """A view from each, one after the other in one tensor; each draws as if it were the only one."""
        rows, count = 1 if self.draw == "batch" else len(x), len(x) * len(randoms)
        noise = x.new_empty(count if self.jitter else 0, *x.shape[1:])
        drawn = []
        for number, random in enumerate(randoms):
            angles = random.uniform(-self.rotation, self.rotation, 3 * rows).view(rows, 3) * (math.pi / 180)
            offsets = random.uniform(-self.translation, self.translation, 3 * rows).view(rows, 1, 3)
            matrices = rotation(angles)
            if self.scale:
                matrices = matrices * random.uniform(1 - self.scale, 1 + self.scale, rows).view(rows, 1, 1)
            drawn.append((offsets, matrices))
            noise[number * len(x) :][: len(x)].normal_(generator=random.device)
        offsets, matrices = (moved(for_each(torch.cat(parts), count), x) for parts in zip(*drawn, strict=True))
        view = torch.baddbmm(offsets.expand(count, 1, 3), x.repeat(len(randoms), 1, 1), matrices.expand(count, 3, 3))
        return view + self.jitter * noise.clamp_(-MOST_JITTER, MOST_JITTER) if self.jitter else view


def rotation(angles: Tensor) -> Tensor:
    """(R, 3) angles about x, y and z, in that order, to (R, 3, 3) matrices that rotate row vectors by them."""
    cos, sin = angles.cos(), angles.sin()
    one, zero = torch.ones_like(cos[:, 0]), torch.zeros_like(cos[:, 0])

    def matrix(*entries: Tensor) -> Tensor:
        return torch.stack(entries, 1).view(-1, 3, 3)

    about_x = matrix(one, zero, zero, zero, cos[:, 0], sin[:, 0], zero, -sin[:, 0], cos[:, 0])
    about_y = matrix(cos[:, 1], zero, -sin[:, 1], zero, one, zero, sin[:, 1], zero, cos[:, 1])
    about_z = matrix(cos[:, 2], sin[:, 2], zero, -sin[:, 2], cos[:, 2], zero, zero, zero, one)
    return about_x @ about_y @ about_z
