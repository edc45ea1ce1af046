"""Views of point clouds, (N, P, 3) with y up: a random rotation, then a random translation.

The paper names both and gives no ranges; these are ours. Rotation is about all three axes, so that it covers a tilted
sensor; the translation is small against a cloud whose longest side is 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ctta.randomness import Randomness
from ctta.views.images import Draw

ROTATION = 10.0  # degrees either way, about each axis
TRANSLATION = 0.1  # either way, along each axis


@dataclass(frozen=True)
class CloudViews:
    """Random rotation and translation. `draw` says whether the batch shares one draw or each cloud has its own."""

    draw: Draw = "batch"
    limits: ClassVar[tuple[float, float] | None] = None  # clouds may lie anywhere

    def __call__(self, x: Tensor, random: Randomness) -> Tensor:
        rows = 1 if self.draw == "batch" else len(x)
        angles = random.uniform(-ROTATION, ROTATION, 3 * rows).view(rows, 3) * (math.pi / 180)
        offsets = random.uniform(-TRANSLATION, TRANSLATION, 3 * rows).view(rows, 1, 3)
        return torch.baddbmm(offsets.to(x).expand(len(x), 1, 3), x, rotation(angles).to(x).expand(len(x), 3, 3))


def rotation(angles: Tensor) -> Tensor:
    """(R, 3) angles about x, y and z, in that order, to (R, 3, 3) matrices that act on row vectors."""
    cos, sin = angles.cos(), angles.sin()
    one, zero = torch.ones_like(cos[:, 0]), torch.zeros_like(cos[:, 0])

    def matrix(*entries: Tensor) -> Tensor:
        return torch.stack(entries, 1).view(-1, 3, 3)

    about_x = matrix(one, zero, zero, zero, cos[:, 0], sin[:, 0], zero, -sin[:, 0], cos[:, 0])
    about_y = matrix(cos[:, 1], zero, -sin[:, 1], zero, one, zero, sin[:, 1], zero, cos[:, 1])
    about_z = matrix(cos[:, 2], sin[:, 2], zero, -sin[:, 2], cos[:, 2], zero, zero, zero, one)
    return about_x @ about_y @ about_z
