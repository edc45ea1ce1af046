"""From a sweep's folder to its summary: points by methods, and means over the axes that are averaged.

    sweep.json          axes and points (see `Head`)
    points/<slug>/      a run folder each
    summary.csv         a line for each point and label: mean error, standard deviation over seeds
    averages.csv        where axes are averaged: mean and standard deviation over their points
    summary.json        both, unrounded
    summary.md          points and labels as the rows and columns of one table; averages.md likewise
    report.html         both tables, with a link to each point's page

In an average each point counts once, with its mean over seeds. Nothing is a best-of.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ctta.base.fileio import write_atomically
from ctta.records.sweep_folder import SHORT, Head, SweepFolder, heads, shown, text
from ctta.report.metrics import Value, over_seeds
from ctta.report.tables import errors as tables
from ctta.report.tables.errors import ABSENT

METHOD = ("method",)  # head of a grid whose rows are labels


@dataclass(frozen=True)
class Line:
    """One label at one point; or at several, over which it is averaged."""

    label: str
    method: str
    values: Mapping[str, Any]  # along the axes that are not averaged
    error: Value | None
    count: int  # seeds, or points
    status: str  # empty when all of it is complete
    problems: tuple[str, ...]  # why the numbers are not valid; empty when they are
    point: str = ""  # the name of its folder; empty for an average

    @property
    def remark(self) -> str:
        """That it is running, or not valid, and why; else empty."""
        invalid = f"invalid: {'; '.join(self.problems)}" if self.problems else ""
        return ", ".join(part for part in (self.status, invalid) if part)


@dataclass(frozen=True)
class Overview:
    """All lines of a sweep."""

    head: Head
    lines: tuple[Line, ...]
    averages: tuple[Line, ...] = field(default=())  # empty where nothing is averaged

    def caption(self, averages: bool) -> str:
        over = ", ".join(self.head.over)
        spread = f"Mean ± standard deviation over {over}; a point counts with its mean over seeds." if averages else ""
        several = any(line.count > 1 for line in self.lines)
        return " ".join(
            part
            for part in (
                "Mean error in %, lower is better, best in bold.",
                spread or ("Several seeds: mean ± standard deviation." if several else ""),
                self._numbers(),
            )
            if part
        )

    def _numbers(self) -> str:
        long = [key for key, values in self.head.axes.items() if any(len(text(value)) > SHORT for value in values)]
        return f"Long values of {', '.join(long)} go by their number; sweep.json has them." if long else ""


def build(folder: SweepFolder) -> Overview:
    """The summary of a sweep, complete or not."""
    head = folder.head()
    lines = []
    for slug, run in folder.begun().items():
        for row in tables.build(run).rows:
            about = (row.label, row.method, head.points[slug], row.mean, len(row.seeds))
            lines.append(Line(*about, row.status, row.problems, slug))
    return Overview(head, tuple(lines), average(lines, head.over))


def average(lines: Iterable[Line], over: Sequence[str]) -> tuple[Line, ...]:
    """Lines that differ on the axes of `over` alone become one."""
    if not over:
        return ()
    groups: dict[str, list[Line]] = {}
    for line in lines:
        rest = {key: value for key, value in line.values.items() if key not in over}
        groups.setdefault(json.dumps([rest, line.label]), []).append(line)
    return tuple(_averaged(group, over) for group in groups.values())


def _averaged(group: Sequence[Line], over: Sequence[str]) -> Line:
    found = [line.error.mean for line in group if line.error is not None]
    left = sum(bool(line.status) for line in group)
    return Line(
        label=group[0].label,
        method=group[0].method,
        values={key: value for key, value in group[0].values.items() if key not in over},
        error=over_seeds(found),
        count=len(group),
        status=f"running, {len(group) - left} of {len(group)} points" if left else "",
        problems=tuple(dict.fromkeys(problem for line in group for problem in line.problems)),
    )


# Rendering


@dataclass(frozen=True)
class Shown:
    """One error of a table."""

    error: Value | None
    best: bool = False  # at its point
    note: int = 0  # the number of the remark on it; 0: none

    def text(self, *, spread: bool = True) -> str:
        said = ABSENT if self.error is None else str(self.error if spread else replace(self.error, sd=None))
        return f"{said} [{self.note}]" if self.note else said


@dataclass(frozen=True)
class Grid:
    """Points and labels as a table: the more of them are the rows."""

    names: tuple[str, ...]  # heads of the columns that name a row: the axes, or "method"
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Shown, ...]], ...]  # names, then errors
    links: tuple[str, ...]  # the points' pages; empty for averages
    remarks: tuple[str, ...]

    @property
    def points_down(self) -> bool:
        return self.names != METHOD


def grid(made: Overview, averages: bool = False) -> Grid:
    """All points, or all averages."""
    lines = made.averages if averages else made.lines
    axes = [key for key in made.head.axes if not (averages and key in made.head.over)]
    titles = heads(made.head.axes)
    groups: dict[tuple[str, ...], dict[str, Line]] = {}  # by point and label
    for line in lines:
        at = tuple(shown(made.head.axes[key], line.values[key]) for key in axes)
        groups.setdefault(at, {})[line.label] = line
    labels = tuple(dict.fromkeys(line.label for line in lines))
    remarks = tuple(dict.fromkeys(line.remark for line in lines if line.remark))
    cells = {at: _cells(group, labels, remarks) for at, group in groups.items()}
    links = () if averages else tuple(f"points/{next(iter(g.values())).point}/report.html" for g in groups.values())
    if len(labels) > len(groups):
        across = zip(*cells.values(), strict=True)
        columns = tuple(", ".join(at) for at in groups)
        rows = tuple(((label,), errors) for label, errors in zip(labels, across, strict=True))
        return Grid(METHOD, columns, rows, links, remarks)
    return Grid(tuple(titles[key] for key in axes), labels, tuple(cells.items()), links, remarks)


def _cells(group: Mapping[str, Line], labels: Sequence[str], remarks: Sequence[str]) -> tuple[Shown, ...]:
    """The errors at one point, a label each. Ties as printed share the mark; alone or not valid, none is best."""
    valid = {label: f"{line.error.mean:.1f}" for label, line in group.items() if line.error and not line.problems}
    least = min(valid.values(), key=float) if len(valid) > 1 else None

    def cell(line: Line) -> Shown:
        note = remarks.index(line.remark) + 1 if line.remark else 0
        return Shown(line.error, least is not None and valid.get(line.label) == least, note)

    return tuple(cell(group[label]) if label in group else Shown(None) for label in labels)


def to_rich(made: Overview, averages: bool = False, width: int = 120) -> RichTable:
    """For the terminal. Where it is too narrow, columns go by number, then standard deviations are left out."""
    found, caption = grid(made, averages), made.caption(averages)
    console = Console(width=10_000)
    layouts = (
        _rich(made.head.name, found, caption, numbers=numbers, spread=spread)
        for numbers, spread in ((False, True), (True, True), (True, False))
    )
    for rich in layouts:
        if Measurement.get(console, console.options, rich).maximum <= width:
            break
    return rich


def _rich(title: str, found: Grid, caption: str, *, numbers: bool, spread: bool) -> RichTable:
    columns = [f"#{number}" for number in range(1, len(found.columns) + 1)] if numbers else found.columns
    meant = [" · ".join(map(" ".join, zip(columns, found.columns, strict=True)))] if numbers else []
    said = "\n".join([caption, *meant, *_numbered(found.remarks)])
    table = RichTable(title=Text(title), caption=Text(said), caption_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for name in found.names:
        table.add_column(Text(name), no_wrap=True)
    for name in columns:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for names, errors in found.rows:
        shown = (Text(error.text(spread=spread), "bold" if error.best else "") for error in errors)
        table.add_row(*map(Text, names), *shown)
    return table


def to_markdown(made: Overview, averages: bool = False) -> str:
    """A Markdown table with its caption below."""
    found = grid(made, averages)
    rows = [[*found.names, *found.columns]]
    for names, errors in found.rows:
        rows.append([*names, *(f"**{one.text()}**" if one.best else one.text() for one in errors)])
    rule = ["---"] * len(found.names) + ["---:"] * len(found.columns)
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]
    below = [made.caption(averages), *_numbered(found.remarks)]
    return "\n".join([*lines, "", "\n\n".join(below), ""])


def _numbered(remarks: Sequence[str]) -> list[str]:
    return [f"[{number}] {remark}." for number, remark in enumerate(remarks, start=1)]


def to_csv(made: Overview, averages: bool = False) -> str:
    """One line for each point and label, or each average; axes by their full names, values whole."""
    axes = [key for key in made.head.axes if not (averages and key in made.head.over)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    counted = "points" if averages else "seeds"
    folder = [] if averages else ["folder"]
    writer.writerow([*axes, "label", "method", "error", "sd", counted, "status", "problems", *folder])
    for line in made.averages if averages else made.lines:
        error = "" if line.error is None else f"{line.error.mean:.2f}"
        sd = "" if line.error is None or line.error.sd is None else f"{line.error.sd:.2f}"
        status = line.status or ("invalid" if line.problems else "complete")
        at = [text(line.values[key]) for key in axes]
        where = [] if averages else [f"points/{line.point}"]
        writer.writerow([*at, line.label, line.method, error, sd, line.count, status, "; ".join(line.problems), *where])
    return out.getvalue()


def to_json(made: Overview) -> dict[str, Any]:
    """Plain data, unrounded."""
    return {**asdict(made), "unit": "percent error"}


def to_html(made: Overview) -> str:
    """One page: the summary, with a link to each point's own."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["words"] = text
    style = Markup((files("ctta.report.page") / "style.css").read_text(encoding="utf-8"))  # our own file
    template = (files("ctta.report.page") / "sweep.html.jinja").read_text(encoding="utf-8")
    parts = [("Points", grid(made), made.caption(False))]
    if made.averages:
        parts.insert(0, ("Averages", grid(made, True), made.caption(True)))
    return environment.from_string(template).render(head=made.head, parts=parts, numbered=_numbered, style=style)


def write(folder: SweepFolder, made: Overview) -> Path:
    """All forms of a summary, in the sweep's folder; returns the page."""
    texts = {"summary.csv": to_csv(made), "summary.md": to_markdown(made)}
    texts["summary.json"] = json.dumps(to_json(made), indent=1)
    if made.averages:
        texts |= {"averages.csv": to_csv(made, True), "averages.md": to_markdown(made, True)}
    texts["report.html"] = to_html(made)
    for name, content in texts.items():
        write_atomically(folder.path / name, content.encode())
    return folder.path / "report.html"
