"""Cost and benefit of the number of augmentations: time per batch over a plain pass, and the error from two tables.

Times are measured here, as in `benchmarks.methods`: on random weights, bfloat16 passes without gradient, interleaved.
Errors are read from the tables results/lean_curve_*.csv, by row name ("lean 4": 4 augmentations in the way of lean).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.cost_chart import save, times_axis
from benchmarks.methods import (
    REFERENCE,
    Make,
    adapter_subject,
    measure,
    random_batch,
    random_model,
    reference_subject,
)
from benchmarks.origin import origin
from ctta import DSS
from ctta.core.execution import FAST
from ctta.running.memory import keep_freed

RESULTS = Path("results")
OUT = Path("runs/bench")


@dataclass(frozen=True)
class Curve:
    """A network, and the table with the errors."""

    title: str
    model: str
    errors: Path
    rounds: int


CURVES = (
    Curve("CIFAR-10, ResNet-20", "cifar_resnet20", RESULTS / "lean_curve_cifar10.csv", rounds=3),
    Curve("CIFAR-100, ResNet-56", "cifar100_resnet56_b", RESULTS / "lean_curve_cifar100.csv", rounds=3),
)


# Ways to average views, by the first word of a row's name: the variant of the preset, and fields over it.
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lean": ("fast", {"unaugmented_weight": 0.5}),
    "weighed": ("fast", {}),
    "paper": ("paper", {}),
}


def errors_of(table: Path) -> dict[str, tuple[float, float | None]]:
    """Read the mean error of each label, and its standard deviation over seeds."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["label"]: (float(row["mean"]), float(row["mean sd"]) if row.get("mean sd") else None) for row in rows}


def time_curve(curve: Curve, labels: list[str], batch: int) -> dict[str, dict[str, Any]]:
    """Measure each label."""
    model, x = random_model(curve.model), random_batch((batch, 3, 32, 32))
    execution = FAST.replace(precision="bfloat16")

    def maker(kind: str, views: int) -> Callable[[], Any]:
        variant, fields = KINDS[kind]
        return lambda: adapter_subject(DSS, model, x, views, variant, execution, **fields)

    made: dict[str, tuple[str, Make]] = {REFERENCE: ("cotta", lambda: reference_subject(model, x, 32))}
    made |= {label: ("dss", maker(label.split()[0], int(label.split()[1]))) for label in labels}
    measured = measure(made, model, x, rounds=curve.rounds, views=32)
    return {row["label"]: row for row in measured["rows"]}


def show(title: str, rows: list[Mapping[str, Any]]) -> Table:
    """Make the table of error and time per number of augmentations."""
    table = Table("augmentations", "error %", "x plain", "/ public", title=title)
    for row in sorted(rows, key=lambda row: (row["kind"], int(row["label"].split()[1]))):
        times = (f"{row['forward_ratio']:.1f}", f"{row['reference_ratio']:.3f}")
        table.add_row(row["label"], f"{row['error']:.1f}", *times)
    return table


def draw(curves: Mapping[str, list[Mapping[str, Any]]], folder: Path) -> list[Path]:
    """Draw error against time, one panel per network; lower left is better."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        for kind, colour in (("lean", "tab:red"), ("weighed", "tab:green"), ("paper", "tab:blue")):
            points = sorted((row["forward_ratio"], row["error"], row["label"]) for row in rows if row["kind"] == kind)
            axes.plot(
                [time for time, _, _ in points], [error for _, error, _ in points], "o-", color=colour, label=kind
            )
            for time, error, label in points:
                axes.annotate(label.split()[1], (time, error), xytext=(4, 4), textcoords="offset points", fontsize=8)
        times_axis(axes)
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("mean error, %")
        axes.margins(x=0.1)
        axes.legend(fontsize=8)
    return save(figure, folder, "lean_curve")


def main(*, batch: int = 200, out: Path = OUT, curves: tuple[Curve, ...] = CURVES) -> None:
    """Measure, print, and write the JSON and the chart."""
    console, found = Console(), dict[str, list[dict[str, Any]]]()
    keep_freed()
    for curve in curves:
        if not curve.errors.is_file():
            console.print(f"{curve.title}: there is no {curve.errors}, so there are no errors to show.")
            continue
        errors = errors_of(curve.errors)
        times = time_curve(curve, list(errors), batch)
        found[curve.title] = [
            {
                "label": label,
                "kind": label.split()[0],
                "error": error,
                "deviation": deviation,
                **{name: times[label][name] for name in ("forward_ratio", "reference_ratio", "seconds")},
            }
            for label, (error, deviation) in errors.items()
        ]
        console.print(show(curve.title, list(found[curve.title])))
    if found:
        out.mkdir(parents=True, exist_ok=True)
        document = {**origin({"weights": "random"}), "batch": batch, "curves": found}
        (out / "lean_curve.json").write_text(json.dumps(document, indent=1) + "\n")
        paths = draw(found, out)
        console.print(f"Written: {', '.join(str(path) for path in (out / 'lean_curve.json', *paths))}")


if __name__ == "__main__":
    main()
