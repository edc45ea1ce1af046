"""Standard training augmentation, drawn independently for each sample from `random`.

images up to 64 px   zero padding by 4 pixels, then a random crop of the original size
larger images        a random resized crop of at least 8 % of the area
all images           a horizontal flip with probability 0.5
point clouds         rotation about the vertical axis (y), scaling, translation, jitter of each point
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.errors import InputError
from ctta.base.image_size import is_large
from ctta.base.randomness import Randomness
from ctta.core.views import images
from ctta.core.views.clouds import rotation

PAD = 4  # pixels on each side
AREA = (0.08, 1.0)  # of the image
RATIO = (3 / 4, 4 / 3)  # width to height
SCALE = (0.8, 1.25)
MOVE = 0.1  # at most, along each axis; the longest side of a point cloud is 2
JITTER, JITTER_LIMIT = 0.01, 0.05  # standard deviation, and the largest displacement of a point


def augment(x: Tensor, random: Randomness, *, flip: bool = True) -> Tensor:
    """Augment images (N, C, H, W) or point clouds (N, P, 3); `flip` allows horizontal flips of images."""
    if x.dim() == 3:
        return _clouds(x, random)
    x = _parts(x, random) if is_large(*x.shape[2:]) else _shifts(x, random)
    return images.flip(x, _draw(x, random, 0, 1) < 0.5) if flip else x


def draw_points(x: Tensor, count: int, random: Randomness) -> Tensor:
    """Draw `count` points of each point cloud (N, P, 3) without replacement; all points if there are fewer."""
    if x.dim() != 3:
        raise InputError(f"Points can be drawn only from point clouds (N, P, 3). Got the shape {tuple(x.shape)}.")
    order = random.uniform(0, 1, len(x) * x.shape[1]).view(len(x), -1).argsort(1)[:, :count]
    return x.gather(1, order.to(x.device)[..., None].expand(-1, -1, 3))


def shift(x: Tensor, offsets: Tensor) -> Tensor:
    """Crop the padded image at `offsets` (N, 2), row and column; (PAD, PAD) returns the image itself."""
    padded = F.pad(x, [PAD] * 4)
    rows = offsets[:, 0, None] + torch.arange(x.shape[2], device=x.device)  # (N, H)
    columns = offsets[:, 1, None] + torch.arange(x.shape[3], device=x.device)  # (N, W)
    which = torch.arange(len(x), device=x.device)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def part(x: Tensor, size: Tensor, centre: Tensor) -> Tensor:
    """Crop and resize: `size` (N, 2) is width and height as fractions, `centre` (N, 2) lies in [-1, 1]."""
    matrix = torch.cat([torch.diag_embed(size), centre[:, :, None]], 2)  # (N, 2, 3)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def _shifts(x: Tensor, random: Randomness) -> Tensor:
    offsets = random.uniform(0, 2 * PAD + 1, 2 * len(x)).floor().clamp(max=2 * PAD).long()
    return shift(x, offsets.view(-1, 2).to(x.device))


def _parts(x: Tensor, random: Randomness) -> Tensor:
    area = _draw(x, random, *AREA)
    ratio = _draw(x, random, math.log(RATIO[0]), math.log(RATIO[1])).exp() * x.shape[2] / x.shape[3]
    size = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], 1).clamp(max=1)
    room = torch.stack([_draw(x, random, -1, 1), _draw(x, random, -1, 1)], 1)
    return part(x, size, room * (1 - size))


def _clouds(x: Tensor, random: Randomness) -> Tensor:
    turn = torch.zeros(len(x), 3, dtype=x.dtype, device=x.device)
    turn[:, 1] = _draw(x, random, 0, 2 * math.pi)
    scale = _draw(x, random, *SCALE)[:, None, None]
    move = torch.stack([_draw(x, random, -MOVE, MOVE) for _ in range(3)], 1)[:, None, :]
    noise = torch.empty_like(x).normal_(0, JITTER, generator=random.device).clamp_(-JITTER_LIMIT, JITTER_LIMIT)
    return x @ rotation(turn) * scale + move + noise


def _draw(x: Tensor, random: Randomness, low: float, high: float) -> Tensor:
    """Draw one number per sample."""
    return random.uniform(low, high, len(x)).to(x)
