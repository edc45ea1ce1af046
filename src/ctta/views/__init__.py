"""Test-time views: random variants of a batch that mean the same.

`Views` is what an adapter asks for. `default_views` picks by the form of the batch: rank 4 is images, (N, P, 3) is
clouds.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ctta.errors import InputError
from ctta.randomness import Randomness
from ctta.views.clouds import CloudViews
from ctta.views.images import Draw, ImageViews

__all__ = ["CloudViews", "Draw", "ImageViews", "Views", "default_views"]


class Views(Protocol):
    """Makes one view of a batch: same shape, all randomness from `random`."""

    def __call__(self, x: Tensor, random: Randomness) -> Tensor: ...


def default_views(x: Tensor, draw: Draw) -> ImageViews | CloudViews:
    """The views that fit the batch."""
    if x.dim() == 4 and x.shape[1] in (1, 3):
        return ImageViews(draw)
    if x.dim() == 3 and x.shape[2] == 3:
        return CloudViews(draw)
    raise InputError(
        f"There are views for images, (N, 3, H, W) or (N, 1, H, W), and for clouds, (N, P, 3). Got {tuple(x.shape)}. "
        "One sample alone needs x.unsqueeze(0); other data need views of their own: views=my_views."
    )
