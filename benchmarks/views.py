"""Time of image augmentation: ours against one operation after the other, for the batch and for each image.

The baseline has one draw per batch, as the released code; `each image` has one per image.
"""

from __future__ import annotations

import itertools
import random

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.reference_views import batch_view, draw_parameters
from benchmarks.timing import Action, medians
from ctta.base.randomness import Randomness
from ctta.core.views import ImageViews

SHAPES = ((200, 3, 32, 32), (16, 3, 224, 224))
BATCH, IMAGES = "op by op, batch", "op by op, each image"


def actions(x: Tensor) -> dict[str, Action]:
    """The timed actions by name; every call makes a new draw."""
    height, width = x.shape[2:]
    source, turns = random.Random(0), itertools.count()

    def reference(images: Tensor) -> Tensor:
        return batch_view(images, draw_parameters(height, width, source))

    def ours(views: ImageViews) -> Tensor:
        return views(x, Randomness(0, next(turns), x.device))

    return {
        BATCH: lambda: reference(x),
        IMAGES: lambda: torch.cat([reference(image[None]) for image in x]),
        "ours, draw=batch": lambda: ours(ImageViews("batch")),
        "ours, draw=sample": lambda: ours(ImageViews("sample")),
    }


def main() -> None:
    """Print the table."""
    table = Table("batch", "augmentation", "ms", "vs batch", "vs each image", title="Image augmentation, speedup")
    for shape in SHAPES:
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        seconds = medians(actions(x))
        for name, value in seconds.items():
            ratios = (f"{seconds[base] / value:.1f}x" for base in (BATCH, IMAGES))
            table.add_row("x".join(map(str, shape)), name, f"{1000 * value:.1f}", *ratios)
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
