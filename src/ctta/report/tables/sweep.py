"""Mean errors of a sweep: points by methods, and means over the axes that are averaged.

In an average each point counts once, with its mean over seeds. Nothing is the best of several runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctta.records.sweep_folder import SHORT, Head, heads, shown, text
from ctta.report.metrics import Value, over_seeds
from ctta.report.tables.errors import ErrorTable, Outcome, lowest
from ctta.report.tables.render import (
    ABSENT,
    Table,
    TableCell,
    TableColumn,
    data_table,
    formatted,
    lacking,
    numbered,
    printed,
)


@dataclass(frozen=True)
class SweepError(Outcome):
    """One method at one point; or at several, over which it is averaged."""

    label: str
    method: str
    values: Mapping[str, Any]  # along the axes that are not averaged
    error: Value | None
    count: int  # seeds, or points
    status: str  # empty if all of it is complete
    problems: tuple[str, ...]  # why the numbers are not valid; empty if they are
    point: str = ""  # the name of its folder; empty for an average


@dataclass(frozen=True)
class SweepErrors:
    """All methods at all points."""

    head: Head
    lines: tuple[SweepError, ...]
    averages: tuple[SweepError, ...] = ()  # empty if nothing is averaged

    def caption(self, averages: bool) -> str:
        """Unit, spread, and what the numbers of long values stand for."""
        parts = ["Mean error in %, lower is better, best in bold."]
        if averages:
            over = ", ".join(self.head.over)
            parts.append(f"Mean ± standard deviation over {over}; a point counts with its mean over seeds.")
        elif any(line.count > 1 for line in self.lines):
            parts.append("Several seeds: mean ± standard deviation; no ±: the same for every seed.")
        long = [key for key, values in self.head.axes.items() if any(len(text(value)) > SHORT for value in values)]
        if long:
            parts.append(f"Long values of {', '.join(long)} are shown by their number; sweep.json has them.")
        return " ".join(parts)


def build(head: Head, points: Mapping[str, ErrorTable]) -> SweepErrors:
    """From the head of a sweep and the errors of the points that have begun, by the names of their folders."""
    lines = [
        SweepError(row.label, row.method, values, row.mean, len(row.seeds), row.status, row.problems, slug)
        for slug, values in head.points.items()
        if slug in points
        for row in points[slug].rows
    ]
    return SweepErrors(head, tuple(lines), average(lines, head.over))


def average(lines: Iterable[SweepError], over: Sequence[str]) -> tuple[SweepError, ...]:
    """Lines that differ only on the axes of `over` become one."""
    groups: dict[str, list[SweepError]] = {}
    for line in lines if over else ():
        rest = {key: value for key, value in line.values.items() if key not in over}
        groups.setdefault(json.dumps([rest, line.label]), []).append(replace(line, values=rest))
    averages = []
    for group in groups.values():
        left = sum(bool(line.status) for line in group)
        error = over_seeds(line.error.mean for line in group if line.error is not None)
        status = f"running, {len(group) - left} of {len(group)} points" if left else ""
        problems = tuple(dict.fromkeys(problem for line in group for problem in line.problems))
        averages.append(replace(group[0], error=error, count=len(group), status=status, problems=problems, point=""))
    return tuple(averages)


# Tables


def table(made: SweepErrors, averages: bool = False, *, spread: bool = True) -> Table:
    """All points, or all averages. Points or methods are the rows, whichever are more."""
    lines = made.averages if averages else made.lines
    axes = axes_of(made, averages)
    groups: dict[tuple[str, ...], dict[str, SweepError]] = {}  # by point and label
    for line in lines:
        at = tuple(shown(made.head.axes[key], line.values[key]) for key in axes)
        groups.setdefault(at, {})[line.label] = line
    labels = list(dict.fromkeys(line.label for line in lines))
    notes = numbered(line.remark for line in lines)
    cells = []  # by point: one per method
    for group in groups.values():
        best = lowest({label: line.error for label, line in group.items() if not line.problems})
        texts = {label: printed(line.error, spread=spread) for label, line in group.items()}
        numbers = {label: notes.get(line.remark, 0) for label, line in group.items()}
        cells.append([TableCell(texts.get(name, ABSENT), name in best, numbers.get(name, 0)) for name in labels])
    pages = [next(iter(group.values())).point for group in groups.values()]
    links = [f"points/{page}/report.html" if page else "" for page in pages]
    if len(labels) > len(groups) or not axes:
        points = (TableColumn(", ".join(at) or "mean", link=link) for at, link in zip(groups, links, strict=True))
        columns = [TableColumn("method", "name"), *points]
        rows = [(TableCell(label), *row) for label, *row in zip(labels, *cells, strict=True)]
    else:
        titles = heads(made.head.axes)
        columns = [*(TableColumn(titles[key], "name") for key in axes), *map(TableColumn, labels)]
        rows = [
            (TableCell(at[0], link=link), *map(TableCell, at[1:]), *row)
            for at, link, row in zip(groups, links, cells, strict=True)
        ]
    return Table(tuple(columns), tuple(rows), made.head.name, (made.caption(averages),), tuple(notes))


def axes_of(made: SweepErrors, averages: bool) -> list[str]:
    """Those along which there are several lines per method."""
    return [key for key in made.head.axes if not (averages and key in made.head.over)]


def layouts(made: SweepErrors, averages: bool = False) -> Iterator[Table]:
    """For the terminal: if it is too narrow, columns are numbered, then standard deviations are left out."""
    yield table(made, averages)
    for spread in (True, False):
        whole = table(made, averages, spread=spread)
        heads = [column.head for column in whole.columns if column.kind == "number"]
        meaning = " · ".join(f"#{number} {head}" for number, head in enumerate(heads, start=1))
        numbers = (TableColumn(f"#{number}") for number in range(1, len(heads) + 1))
        columns = (*(column for column in whole.columns if column.kind == "name"), *numbers)
        file = "averages.csv" if averages else "summary.csv"
        left_out = () if spread or not _spreads(made, averages) else ("standard deviations",)
        yield lacking(replace(whole, columns=columns, caption=(*whole.caption, meaning)), left_out, file)


def _spreads(made: SweepErrors, averages: bool) -> bool:
    """Whether there are standard deviations."""
    return any(one.error and one.error.sd is not None for one in (made.averages if averages else made.lines))


def data(made: SweepErrors, averages: bool = False) -> Table:
    """For CSV: one line per point and method, or per average; axes by their full names, values whole."""

    def line(one: SweepError) -> dict[str, object]:
        return {
            **{key: text(one.values[key]) for key in axes_of(made, averages)},
            "label": one.label,
            "method": one.method,
            "error": one.error and f"{one.error.mean:.2f}",
            "sd": one.error and formatted(one.error.sd, ".2f", ""),
            "points" if averages else "seeds": one.count,
            **one.outcome(),
            **({} if averages else {"folder": f"points/{one.point}"}),
        }

    return data_table([line(one) for one in (made.averages if averages else made.lines)])
