"""Samples as small pictures for the report: images as they are, clouds drawn."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SIZE = 96  # pixels of a drawn cloud
REACH = 1.6  # coordinates that fit into the picture, either way; more if a cloud needs it
AROUND, ABOVE = np.radians([35.0, 25.0])  # where the eye is: about the up axis, and over the horizon
PAPER = (255, 255, 255)
NEAR, FAR = np.array([16, 42, 92]), np.array([190, 208, 232])
DOT = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if row * column == 0]  # a plus of five pixels


def as_pictures(x: Tensor) -> NDArray[np.uint8]:
    """Images (M, 3, H, W) in [0, 1] or clouds (M, P, 3) to uint8 (M, H, W, 3)."""
    if x.dim() == 3:
        return np.stack([draw_cloud(cloud) for cloud in x.detach().cpu().double().numpy()])
    pictures: NDArray[np.uint8] = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return pictures


def draw_cloud(points: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(P, 3), y up, seen from far away, a little from above; what is near is darker and covers what is behind it."""
    right, up, towards = (points @ _eye()).T
    order = np.argsort(towards)
    scale = (SIZE - 1) / 2 / max(REACH, np.abs([right, up]).max())
    column, row = ((SIZE - 1) / 2 + scale * np.stack([right, -up]))[:, order].round().astype(int)
    shade = (towards[order] - towards.min()) / (np.ptp(towards) or 1.0)
    colour = (FAR + shade[:, None] * (NEAR - FAR)).round().astype(np.uint8)
    picture = np.full((SIZE, SIZE, 3), PAPER, np.uint8)
    for down, along in DOT:
        picture[(row + down).clip(0, SIZE - 1), (column + along).clip(0, SIZE - 1)] = colour  # the last one stays
    return picture


def _eye() -> NDArray[np.float64]:
    """Columns: to the right of the picture, up in it, towards the eye."""
    sin, cos = np.sin(AROUND), np.cos(AROUND)
    right = np.array([cos, 0.0, -sin])
    towards = np.array([sin * np.cos(ABOVE), np.sin(ABOVE), cos * np.cos(ABOVE)])
    return np.stack([right, np.cross(towards, right), towards], 1)
