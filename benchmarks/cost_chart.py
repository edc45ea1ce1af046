"""Cost against error: how many plain forward passes a batch takes, and the mean error of a table that a run wrote."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

HEIGHTS = (5, -11, 15, -21)  # of labels beside their points, in turn: neighbours stay apart
SAME_ERROR = {"CoTTA, reference": "CoTTA"}  # the same maths, so the same error


def points(rows: list[dict[str, Any]], errors: Path) -> dict[str, tuple[float, float]]:
    """Plain passes and mean error of each label that is in both; labels are compared by letters and digits alone."""
    with errors.open(newline="") as file:
        table = list(csv.DictReader(file))
    if not table or not {"label", "mean"} <= table[0].keys():
        raise SystemExit(f"{errors} has no columns 'label' and 'mean'. Give the table.csv of a run folder.")
    means = {_plain(row["label"]): float(row["mean"]) for row in table if row["mean"]}
    costs = {row["label"]: row["forward_ratio"] for row in rows}
    found = {label: means.get(_plain(label), means.get(_plain(SAME_ERROR.get(label, label)))) for label in costs}
    return {label: (costs[label], error) for label, error in found.items() if error is not None}


def draw_chart(result: Mapping[str, Any], errors: Path, folder: Path) -> list[Path]:
    """Both axes to the better at the lower left; as SVG and PNG."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    by_cost = sorted(points(result["rows"], errors).items(), key=lambda item: item[1])
    for (label, (cost, error)), height in zip(by_cost, itertools.cycle(HEIGHTS), strict=False):
        axes.plot(cost, error, "o", color="tab:red" if label.startswith("DSS") else "tab:blue")
        axes.annotate(label, (cost, error), xytext=(4, height), textcoords="offset points", fontsize=8)
    axes.set_xlabel("time a batch, in plain forward passes")
    axes.set_ylabel("mean error, %")
    axes.set_title(f"{result['title']}, batch {result['shape'][0]}; errors: {errors.name}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.margins(x=0.2, y=0.12)
    paths = [folder / f"cost_error.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def _plain(label: str) -> str:
    return "".join(letter for letter in label.lower() if letter.isalnum())
