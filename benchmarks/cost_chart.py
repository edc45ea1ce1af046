"""Chart of cost against error: time per batch in plain forward passes, and the mean error from the table of a run."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.transforms import Bbox

FAR = 1.4  # times the median error
PLACES = [(side * (5 + abs(up) / 4), up) for up in (3, -9, 14, -20, 26, -32, 38, -44) for side in (1, -1)]
SAME_ERROR = {"CoTTA, reference": "CoTTA"}  # the same maths, so the same error


def points(rows: list[dict[str, Any]], errors: Path) -> dict[str, tuple[float, float]]:
    """Cost and mean error of each label that is in both; labels are compared by letters and digits only."""
    with errors.open(newline="") as file:
        table = list(csv.DictReader(file))
    if not table or not {"label", "mean"} <= table[0].keys():
        raise SystemExit(f"{errors} has no columns 'label' and 'mean'. Give the table.csv of a run folder.")
    means = {_plain(row["label"]): float(row["mean"]) for row in table if row["mean"]}
    costs = {row["label"]: row["forward_ratio"] for row in rows}
    found = {label: means.get(_plain(label), means.get(_plain(SAME_ERROR.get(label, label)))) for label in costs}
    return {label: (costs[label], error) for label, error in found.items() if error is not None}


def draw_chart(result: Mapping[str, Any], errors: Path, path: Path) -> list[Path]:
    """Draw the chart as SVG and PNG; lower left is better. Methods far above the others are named, not drawn."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("time per batch, in plain forward passes")
    axes.grid(alpha=0.3)
    found = sorted(points(result["rows"], errors).items(), key=lambda item: item[1])
    limit = FAR * median(error for _, (_, error) in found)
    near = [item for item in found if item[1][1] <= limit]
    for label, (cost, error) in near:
        axes.plot(cost, error, "o", color="tab:red" if label.startswith("DSS") else "tab:blue")
    if far := ", ".join(f"{label} {error:.1f}" for label, (_, error) in found if error > limit):
        axes.text(0.01, 0.98, f"Far above: {far}", transform=axes.transAxes, va="top", fontsize=8)
    axes.set_ylabel("mean error, %")
    axes.set_title(f"{result['title']}, batch {result['shape'][0]}; errors: {errors.name}", fontsize=10)
    axes.margins(x=0.2, y=0.2)
    place_labels(axes, canvas, dict(near))
    paths = [path.with_suffix(".svg"), path.with_suffix(".png")]
    with rc_context({"svg.hashsalt": path.stem}):  # the same figure gives the same files
        figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=150)
    return paths


def place_labels(axes: Axes, canvas: FigureCanvasAgg, where: Mapping[str, tuple[float, float]]) -> None:
    """Put each label next to its point, at the first place that covers no point and no other label."""
    canvas.draw()
    marks = axes.transData.transform(list(where.values()))
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in marks]
    for label, point in where.items():
        for sideways, up in PLACES:
            text = axes.annotate(
                label,
                point,
                (sideways, up),
                textcoords="offset points",
                ha="left" if sideways > 0 else "right",
                fontsize=8,
            )
            box = text.get_window_extent(canvas.get_renderer())
            if not any(box.overlaps(other) for other in taken):
                break
            text.remove()
        else:
            axes.annotate(label, point, PLACES[0], textcoords="offset points", fontsize=8)
        taken.append(box)


def _plain(label: str) -> str:
    return "".join(letter for letter in label.lower() if letter.isalnum())
