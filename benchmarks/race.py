"""Error and time of the reference CoTTA and of our methods, on the same weights, stream and threads, in one run.

    python -m benchmarks.race experiments/race_cifar10.yaml --set data.path=... --set model.weights=... --out race.json

Each batch of the stream goes through a plain pass of the source, through `reference_cotta` in float32, and through
every method of the experiment with its first seed; every other batch in reverse order, so that all see the same
machine. The first batch is a warm-up: it counts in the errors, not in the times. A time is the mean over batches, with
or without augmentations. `--beside TENT` compares times with a row of the experiment instead, without the reference.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from benchmarks.methods import REFERENCE
from benchmarks.origin import hashes, origin
from benchmarks.reference_cotta import ReferenceCoTTA
from ctta import METHODS, Adapter
from ctta.data.datasets import open_stream
from ctta.data.stream import Batch
from ctta.experiments import experiment
from ctta.experiments.build import make_adapter
from ctta.running.memory import keep_freed

PLAIN = "plain pass"


@dataclass
class Racer:
    """A participant with its errors and times so far."""

    answer: Callable[[Batch], Tensor]
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)

    def run(self, batch: Batch) -> None:
        began = time.perf_counter()
        logits = self.answer(batch)
        self.seconds.append(time.perf_counter() - began)
        self.wrong += int((batch.answer(logits) != batch.y).sum())


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    label: str
    error: float
    seconds: float
    forward_ratio: float
    ratio: float  # of the time to that of the row that times are compared with


def plain(model: nn.Module) -> Callable[[Batch], Tensor]:
    """The unadapted model."""

    @torch.no_grad()
    def answer(batch: Batch) -> Tensor:
        logits: Tensor = model(batch.x)
        return logits

    return answer


def adapting(adapter: Adapter) -> Callable[[Batch], Tensor]:
    """One of our methods, with known boundaries."""

    def answer(batch: Batch) -> Tensor:
        if batch.first:
            adapter.begin_domain()
        return adapter.step(batch.x).logits

    return answer


def reference(model: nn.Module, preset: str, views: int) -> Callable[[Batch], Tensor]:
    """CoTTA as public code runs it, with the settings of a preset."""
    settings = METHODS["cotta"].preset_fields(preset)
    if settings["optimizer"] != "adam":
        raise SystemExit(f"The reference learns with Adam, and {preset} does not. Give a preset for CIFAR.")
    torch.manual_seed(0)  # it restores by the global generator
    names = ("augmentation_threshold", "lr", "restore")
    adapter = ReferenceCoTTA(model, views=views, **{name: settings[name] for name in names})
    return lambda batch: adapter(batch.x)


def race(found: experiment.Experiment, views: int, beside: str, console: Console) -> list[Row]:
    """Run all of them, batch by batch."""
    keep_freed()
    stream, model = open_stream(found.data, found.protocol), found.model.load()
    cells = [cell for cell in found.cells(next(iter(stream)).x.shape) if cell.seed == found.seeds[0]]
    racers = {PLAIN: Racer(plain(model))}
    if beside == REFERENCE:
        racers[REFERENCE] = Racer(reference(model, cells[0].preset.partition("+")[0], views))
    racers |= {cell.label: Racer(adapting(make_adapter(cell, model, found.execution))) for cell in cells}
    if beside not in racers:
        raise SystemExit(f"There is no row {beside!r} to compare times with. Choose from {', '.join(racers)}.")
    seen = 0
    for number, batch in enumerate(track(stream, "batches", len(stream), console=console)):
        seen += len(batch.x)
        for racer in list(racers.values())[:: 1 if number % 2 == 0 else -1]:
            racer.run(batch)
    seconds = {label: fmean(racer.seconds[1:]) for label, racer in racers.items()}
    return [
        Row(
            label,
            100 * racer.wrong / seen,
            seconds[label],
            seconds[label] / seconds[PLAIN],
            seconds[label] / seconds[beside],
        )
        for label, racer in racers.items()
    ]


def show(title: str, rows: list[Row], beside: str) -> Table:
    """Make the table of errors and times."""
    table = Table("", "error %", "s per batch", "x plain", f"/ {beside}", title=title)
    for row in rows:
        numbers = (f"{row.error:.1f}", f"{row.seconds:.3f}", f"{row.forward_ratio:.1f}", f"{row.ratio:.3f}")
        table.add_row(row.label, *numbers)
    return table


def main(arguments: list[str] | None = None) -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__.partition("\n")[0])
    parser.add_argument("experiment", type=Path, help="YAML file with data, model, execution and methods")
    parser.add_argument("--set", action="append", default=[], dest="change", help="data.path=..., as for ctta run")
    parser.add_argument("--views", type=int, default=32, help="augmentations of the reference")
    parser.add_argument("--beside", default=REFERENCE, help="the row that times are compared with")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    console, found = Console(), experiment.load(given.experiment, given.change)
    rows = race(found, given.views, given.beside, console)
    title = f"{found.name}, batch {found.data.batch}, {found.data.images} images per domain"
    console.print(show(title, rows, given.beside))
    if given.out:
        document: dict[str, Any] = {
            **origin(hashes(found.data, found.model.load())),
            "experiment": found.name,
            "images": found.data.images,
            "batch": found.data.batch,
            "execution": asdict(found.execution),
            "beside": given.beside,
            "rows": [asdict(row) for row in rows],
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
