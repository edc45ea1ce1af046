"""Time of a mean teacher's weight updates after each batch: restore, moving average, optimiser step.

The parameters are random, in the shapes of ResNet-20 (0.3 M) and WRN-28-10 (36.5 M). The first implementation of each
update is that of the released code.
"""

from __future__ import annotations

import itertools
import math

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.timing import Action, medians
from ctta.base.randomness import Randomness
from ctta.core.teacher import stochastic_restore
from ctta.models.cifar_resnet import CifarResNet

RESTORE = 0.01
EMA = 0.999


def resnet20_shapes() -> list[tuple[int, ...]]:
    """The shapes of our own model."""
    return [tuple(parameter.shape) for parameter in CifarResNet(20).parameters()]


def wrn_28_10_shapes() -> list[tuple[int, ...]]:
    """Four blocks in each of three groups, 160 to 640 channels, ten classes."""
    shapes: list[tuple[int, ...]] = [(16, 3, 3, 3)]
    inputs = 16
    for channels in (160, 320, 640):
        for block in range(4):
            width = inputs if block == 0 else channels
            shapes += [(width,), (width,), (channels, width, 3, 3)]
            shapes += [(channels,), (channels,), (channels, channels, 3, 3)]
            shapes += [(channels, width, 1, 1)] if block == 0 else []
        inputs = channels
    return [*shapes, (640,), (640,), (10, 640), (10,)]


def make(shapes: list[tuple[int, ...]], seed: int) -> list[Tensor]:
    """Draw random parameters."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) * 0.05 for shape in shapes]


def restore_actions(weights: list[Tensor], source: list[Tensor]) -> dict[str, Action]:
    """Restore by a mask per tensor, in two ways, and by a few indices."""
    turns = itertools.count()

    def blend() -> None:
        for weight, origin in zip(weights, source, strict=True):
            chosen = (torch.rand(weight.shape) < RESTORE).float()
            weight.data = origin * chosen + weight * (1.0 - chosen)

    def choose() -> None:
        for weight, origin in zip(weights, source, strict=True):
            weight.copy_(torch.where(torch.rand(weight.shape) < RESTORE, origin, weight))

    def indices() -> None:
        stochastic_restore(zip(weights, source, strict=True), RESTORE, Randomness(0, next(turns), torch.device("cpu")))

    return {"mask, blended": blend, "boolean mask": choose, "ours: Poisson indices": indices}


def average_actions(teacher: list[Tensor], student: list[Tensor]) -> dict[str, Action]:
    """Average into new tensors, and by one call in place."""

    def loop() -> None:
        for one, other in zip(teacher, student, strict=True):
            one.data = EMA * one + (1 - EMA) * other

    return {"loop, new tensors": loop, "ours: _foreach_lerp_": lambda: torch._foreach_lerp_(teacher, student, 1 - EMA)}


def optimizer_actions(shapes: list[tuple[int, ...]], kind: str) -> dict[str, Action]:
    """Step without and with fused kernels, each on its own weights and moments."""

    def step(fused: bool) -> Action:
        weights = make(shapes, 0)
        for weight, gradient in zip(weights, make(shapes, 1), strict=True):
            weight.requires_grad_().grad = gradient
        if kind == "adam":
            return torch.optim.Adam(weights, lr=1e-6, foreach=False, fused=fused).step
        return torch.optim.SGD(weights, lr=1e-6, momentum=0.9, nesterov=True, foreach=False, fused=fused).step

    return {"for-loop": step(fused=False), "ours: fused": step(fused=True)}


def main() -> None:
    """Print the table."""
    table = Table("parameters", "update", "implementation", "ms", "faster", title="Weight updates")
    for network, shapes, rounds in (("ResNet-20", resnet20_shapes(), 41), ("WRN-28-10", wrn_28_10_shapes(), 9)):
        size = sum(math.prod(shape) for shape in shapes)
        first, second = make(shapes, 0), make(shapes, 1)
        updates = {
            "restore": restore_actions(first, second),
            "moving average": average_actions(first, second),
            "Adam step": optimizer_actions(shapes, "adam"),
            "SGD step": optimizer_actions(shapes, "sgd"),
        }
        for update, ways in updates.items():
            seconds = medians(ways, rounds=rounds)
            slowest = next(iter(seconds.values()))
            for way, value in seconds.items():
                table.add_row(
                    f"{network}, {size / 1e6:.1f} M", update, way, f"{1000 * value:.2f}", f"{slowest / value:.1f}x"
                )
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
