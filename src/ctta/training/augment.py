"""Standard training augmentation. Every sample has draws of its own, all of them from `random`.

images up to 64 px   4 black pixels around, a random crop of the old size
larger images        a random part, 8 % of the area or more, resized
images               mirrored, half of them
clouds               turned about the up axis (y), scaled, moved, each point jittered
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.errors import InputError
from ctta.base.image_size import is_large
from ctta.base.randomness import Randomness
from ctta.core.views.clouds import rotation
from ctta.core.views.images import flip as mirror

PAD = 4  # pixels on each side
AREA = (0.08, 1.0)  # of the image
RATIO = (3 / 4, 4 / 3)  # width to height
SCALE = (0.8, 1.25)
MOVE = 0.1  # either way, along each axis; the longest side of a cloud is 2
JITTER, JITTER_LIMIT = 0.01, 0.05  # standard deviation, and the farthest that a point goes


def augment(x: Tensor, random: Randomness, *, flip: bool = True) -> Tensor:
    """Images (N, C, H, W) or clouds (N, P, 3), altered; `flip` says whether a mirrored image means the same."""
    if x.dim() == 3:
        return _clouds(x, random)
    x = _parts(x, random) if is_large(*x.shape[2:]) else _shifts(x, random)
    return mirror(x, _draw(x, random, 0, 1) < 0.5) if flip else x


def draw_points(x: Tensor, count: int, random: Randomness) -> Tensor:
    """`count` points of each cloud (N, P, 3), without replacement; all where there are fewer."""
    if x.dim() != 3:
        raise InputError(f"Points can be drawn of clouds (N, P, 3) alone. Got a batch of shape {tuple(x.shape)}.")
    order = random.uniform(0, 1, len(x) * x.shape[1]).view(len(x), -1).argsort(1)[:, :count]
    return x.gather(1, order.to(x.device)[..., None].expand(-1, -1, 3))


def shift(x: Tensor, offsets: Tensor) -> Tensor:
    """The crop of the padded image that starts at `offsets` (N, 2), row and column; (PAD, PAD) is the image itself."""
    padded = F.pad(x, [PAD] * 4)
    rows = offsets[:, 0, None] + torch.arange(x.shape[2], device=x.device)  # (N, H)
    columns = offsets[:, 1, None] + torch.arange(x.shape[3], device=x.device)  # (N, W)
    which = torch.arange(len(x), device=x.device)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def part(x: Tensor, size: Tensor, centre: Tensor) -> Tensor:
    """The part of each image with `size` (N, 2), width and height in shares, around `centre` (N, 2) in [-1, 1]."""
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
    """One number a sample."""
    return random.uniform(low, high, len(x)).to(x)
