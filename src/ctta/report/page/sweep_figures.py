"""The figures of a sweep: lines over one axis, heat maps over several; and its best point."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ctta.records.sweep_folder import heads, shown
from ctta.report.page import charts
from ctta.report.page.charts import Series
from ctta.report.page.figures import Figure, legend, rounded
from ctta.report.tables.errors import lowest
from ctta.report.tables.sweep import SweepError, SweepErrors, axes_of

LINES = "Each mark is one method; lower is better. Each column is one point of the sweep."
HEAT = "Mean error in %, one field per point: the stronger the colour, the higher. The lowest is bold and framed."
METHODS = "methods"  # an axis that rows stand for


def draw(made: SweepErrors) -> list[Figure]:
    """Averages if there are any, else all points; none if no axis is left."""
    axes = _axes(made)
    if not axes or not any(line.error for line in made.averages or made.lines):
        return []
    return _lines(made, axes[0]) if len(axes) == 1 else _heat_maps(made, axes)


def _lines(made: SweepErrors, axis: str) -> list[Figure]:
    lines = made.averages or made.lines
    methods = list(dict.fromkeys((line.label, line.method) for line in lines))
    at = {(line.label, *_at(made, line, [axis])): line.error for line in lines}
    columns, styles = _values(made, axis), charts.styles(methods)
    series = [Series(label, [at.get((label, x)) for x in columns], styles[label]) for label, _ in methods]
    title = f"Mean error by {heads([axis])[axis]}"
    svg = charts.dot_chart("sweep", title, columns, series, axis="error, %", apart=False)
    means = [{"label": one.label, "values": [v and rounded(v.mean) for v in one.values]} for one in series]
    return [Figure("sweep", title, LINES, svg, {"head": axis, "domains": columns, "series": means}, legend(series))]


def _heat_maps(made: SweepErrors, axes: Sequence[str]) -> list[Figure]:
    """One per method: the first axis down, the others across."""
    lines, titles = made.averages or made.lines, heads(axes)
    at = {(line.label, *_at(made, line, axes)): round(line.error.mean, 4) for line in lines if line.error}
    rows, across = _values(made, axes[0]), list(product(*(_values(made, key) for key in axes[1:])))
    columns, scale = [" · ".join(x) for x in across], (min(at.values()), max(at.values()))
    figures: list[Figure] = []
    for label in dict.fromkeys(line.label for line in lines if line.error):
        name = f"sweep-{len(figures)}"
        title = f"{label}: {titles[axes[0]]} (down) and {', '.join(titles[key] for key in axes[1:])} (across)"
        values = [[at.get((label, row, *x)) for x in across] for row in rows]
        series = [{"label": x, "values": column} for x, column in zip(columns, zip(*values, strict=True), strict=True)]
        data = {"head": axes[0], "domains": rows, "series": series}
        figures.append(Figure(name, title, HEAT, charts.heat_chart(name, title, rows, columns, values, scale), data))
    return figures


def best(made: SweepErrors) -> tuple[str, str]:
    """The lowest mean error in words, and the page of its point; empty while nothing is complete."""
    found = [line for line in made.averages or made.lines if line.error and not line.problems and not line.status]
    if not found:
        return "", ""
    line = min(found, key=lambda one: one.error.mean if one.error else 0.0)
    axes = _axes(made)
    titles = heads(made.head.axes)
    where = ", ".join(f"{titles[key]} {x}" for key, x in zip(axes, _at(made, line, axes), strict=True))
    words = f"{line.label}{f' at {where}' if where else ''} has the lowest mean error: {line.error}\u202f%."
    if others := len(lowest({str(number): one.error for number, one in enumerate(found)})) - 1:
        words += f" {others} more {'is' if others == 1 else 'are'} as low."
    return words, f"points/{line.point}/report.html" if line.point else ""


def _axes(made: SweepErrors) -> list[str]:
    return [key for key in axes_of(made, bool(made.averages)) if key != METHODS]


def _at(made: SweepErrors, line: SweepError, axes: Sequence[str]) -> list[str]:
    return [shown(made.head.axes[key], line.values[key]) for key in axes]


def _values(made: SweepErrors, axis: str) -> list[str]:
    return list(dict.fromkeys(shown(made.head.axes[axis], value) for value in made.head.axes[axis]))
