"""Augmented views: random variants of a batch that keep its labels.

`Views` is what an adapter asks for. `default_views` picks by the form of the batch: rank 4 is images, (N, P, 3) is
point clouds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from ctta.base.errors import InputError
from ctta.base.randomness import Randomness
from ctta.core.views.augmix import AugMixViews as AugMixViews
from ctta.core.views.augmix import CropViews as CropViews
from ctta.core.views.clouds import CloudViews as CloudViews
from ctta.core.views.images import Draw as Draw
from ctta.core.views.images import ImageViews as ImageViews
from ctta.core.views.images import StrongViews as StrongViews
from ctta.core.views.images import WeakViews as WeakViews

ViewKind = Literal["full", "clean", "weak", "strong", "crop", "augmix"]


class Views(Protocol):
    """Makes one view of a batch: same shape, all randomness from `random`. Called in any thread, once at a time.

    It may also have `many(x, randoms)`, which makes a view from each, one after the other in one tensor.
    """

    def __call__(self, x: Tensor, random: Randomness) -> Tensor: ...


def many_views(views: Views, x: Tensor, randoms: Sequence[Randomness]) -> Tensor:
    """A view from each, one after the other in one tensor."""
    if len(randoms) == 1:
        return views(x, randoms[0])
    many: Callable[[Tensor, Sequence[Randomness]], Tensor] | None = getattr(views, "many", None)
    return many(x, randoms) if many else torch.cat([views(x, random) for random in randoms])


def default_views(x: Tensor, draw: Draw, kind: ViewKind = "full") -> Views:
    """The augmented views that fit the batch: `kind` is for images, point clouds have one kind."""
    if x.dim() == 4 and x.shape[1] in (1, 3):
        match kind:
            case "weak":
                return WeakViews(draw)
            case "strong":
                return StrongViews(draw)
            case "crop":
                return CropViews()
            case "augmix":
                return AugMixViews()
            case _:
                return ImageViews(draw, clean=kind == "clean")
    if x.dim() == 3 and x.shape[2] == 3:
        return CloudViews(draw)
    raise InputError(
        f"There are augmented views for images, (N, 3, H, W) or (N, 1, H, W), and for point clouds, (N, P, 3). Got "
        f"{tuple(x.shape)}. "
        "A single sample needs x.unsqueeze(0); other data need views of their own: views=my_views."
    )
