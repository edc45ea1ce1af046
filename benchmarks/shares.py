"""Error of several rules for the weight of the un-augmented batch, from the predictions of one run.

    python -m benchmarks.shares experiments/share_rule.yaml --set data.path=... --set model.weights=... --out shares.csv

DSS fast runs on a stream with 8 augmentations. For every batch the logits of the augmented views and of the
un-augmented batch are kept, and each rule predicts from the first 4 and from all 8. The effect of a rule on the teacher
is not measured. Rows are appended to the CSV, so that one file can hold several streams.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from benchmarks.origin import add_origin, hashes, origin
from ctta import DSS
from ctta.core.teacher import confidence_weight, mean_confidence
from ctta.data.datasets import open_stream
from ctta.experiments import experiment

Rule = Callable[[Tensor, Tensor], Tensor]  # mean confidences without and with augmentation -> weight

RULES: dict[str, Rule] = {
    **{f"always {share:g}": lambda plain, view, share=share: plain.new_tensor(share) for share in (0, 0.25, 0.5, 1)},
    "10 x difference": lambda plain, view: (10 * (plain - view)).clamp(0, 1),
    "relative doubt": lambda plain, view: ((plain - view) / (1 - plain)).clamp(0, 1),
    "confidence": confidence_weight,
}
MOST, FEW = 8, 4


class Kept(DSS):
    """DSS that keeps its teacher's logits of each view and of the un-augmented batch."""

    def averaged(self, network: nn.Module, x: Tensor, views: int, seen: list[Tensor] | None = None) -> Tensor:
        self.said, self.plain = torch.stack(list(self.run_views(network, x, views))), self.run(network, x)
        return self.said.mean(0).lerp(self.plain, 0.5)


def answer(views: Tensor, plain: Tensor, rule: Rule) -> Tensor:
    """Combine logits by a rule."""
    view = torch.stack([mean_confidence(logits) for logits in views]).mean()
    return views.mean(0).lerp(plain, rule(mean_confidence(plain), view))


def errors(found: experiment.Experiment, console: Console) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Give each rule, its number of augmentations, and the error in percent per domain."""
    stream, method = open_stream(found.data, found.protocol), found.methods[0]
    adapter = Kept(found.model.load(), preset=method.preset, views=MOST, execution=found.execution)
    kept: list[tuple[str, Tensor, Tensor, Tensor]] = []
    for batch in track(stream, "batches", len(stream), console=console):
        if batch.first:
            adapter.begin_domain()
        adapter.step(batch.x)
        kept.append((batch.domain, adapter.said, adapter.plain, batch.y))
    for name, rule in RULES.items():
        for views in (FEW, MOST):
            wrong: dict[str, list[float]] = {}
            for domain, said, plain, y in kept:
                missed = (answer(said[:views], plain, rule).argmax(1) != y).float().mean().item()
                wrong.setdefault(domain, []).append(100 * missed)
            yield name, views, {domain: fmean(values) for domain, values in wrong.items()}


def main(arguments: list[str] | None = None) -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shares", description=__doc__.partition("\n")[0])
    parser.add_argument("experiment", type=Path, help="YAML file with data, model, execution, and DSS with its preset")
    parser.add_argument("--set", action="append", default=[], dest="change", help="data.path=..., as for ctta run")
    parser.add_argument("--name", default="", help="name of the stream in the table")
    parser.add_argument("--out", type=Path, help="CSV file to append rows to")
    given = parser.parse_args(arguments)
    console, found = Console(), experiment.load(given.experiment, given.change)
    table = Table("rule", "augmentations", "error %", title=given.name or found.name)
    rows: list[list[Any]] = []
    for name, views, by_domain in errors(found, console):
        mean = f"{fmean(by_domain.values()):.2f}"
        table.add_row(name, str(views), mean)
        rows.append([given.name, name, views, *(f"{value:.1f}" for value in by_domain.values()), mean])
    console.print(table)
    if given.out:
        head = ["stream", "rule", "views", *by_domain, "mean"]
        add_origin(given.out, {"stream": given.name, **origin(hashes(found.data, found.model.load()))})
        new = not given.out.exists()
        with given.out.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows] if new else rows)


if __name__ == "__main__":
    main()
