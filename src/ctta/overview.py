"""From a sweep's folder to its summary: a line for each point and label, and means over the axes that are averaged.

    sweep.json          axes and points (see `Head`)
    points/<slug>/      a run folder each
    summary.csv, .md    a line for each point and label: mean error, standard deviation over seeds
    averages.csv, .md   where axes are averaged: mean and standard deviation over their points
    summary.json        both, unrounded
    report.html         both, with a link to each point's page

In an average each point counts once, with its mean over seeds. Nothing is a best-of.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rich.box import SIMPLE
from rich.table import Table as RichTable
from rich.text import Text

from ctta import tables
from ctta.errors import StateError
from ctta.files import make_folder
from ctta.metrics import Value, over_seeds
from ctta.records import RunFolder, write_atomically
from ctta.tables import ABSENT

SHORT = 32  # letters of a value that a table shows; longer ones go by their number on the axis


@dataclass(frozen=True)
class Head:
    """The head of a sweep's folder."""

    name: str
    axes: Mapping[str, Sequence[Any]]
    over: tuple[str, ...]  # axes that are averaged
    points: Mapping[str, Mapping[str, Any]]  # by the name of its folder: its value on each axis
    command: str = ""


class SweepFolder:
    """Reads and writes the folder of a sweep."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def is_one(self) -> bool:
        return (self.path / "sweep.json").is_file()

    def write(self, head: Head) -> None:
        """A grid that has grown keeps the points that are there."""
        if (self.path / "run.json").is_file():
            raise StateError(f"{self.path} holds a single run, and a sweep has a folder for each. Give another --out.")
        make_folder(self.path)
        write_atomically(self.path / "sweep.json", json.dumps(asdict(head), indent=1).encode())

    def head(self) -> Head:
        data = json.loads((self.path / "sweep.json").read_text())
        return Head(**{**data, "over": tuple(data["over"])})

    def point(self, slug: str) -> RunFolder:
        return RunFolder(self.path / "points" / slug)

    def begun(self) -> dict[str, RunFolder]:
        """The points that have a run folder."""
        points = {slug: self.point(slug) for slug in self.head().points}
        return {slug: folder for slug, folder in points.items() if (folder.path / "run.json").is_file()}


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
                "Mean error in %, lower is better.",
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


def text(value: Any) -> str:
    """A value in words, whole; lists as JSON."""
    if isinstance(value, Mapping):  # {"kind": "recurring", "rounds": 3}: recurring, rounds 3
        return ", ".join(text(one) if name == "kind" else f"{name} {text(one)}" for name, one in value.items())
    return value if isinstance(value, str) else json.dumps(value, default=str)


def shown(values: Sequence[Any], value: Any) -> str:
    """A value as a table shows it: in words, or by its number on the axis where they are long."""
    said = text(value)
    return said if len(said) <= SHORT else f"#{[text(one) for one in values].index(said) + 1}"


def heads(axes: Iterable[str]) -> dict[str, str]:
    """The short name of each axis: its field, unless two have the same."""
    names = list(axes)
    last = [name.rpartition(".")[2] for name in names]
    return {name: short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)}


def grid(made: Overview, averages: bool = False) -> list[list[str]]:
    """Head and lines as printed: axes, label, error, and a remark where there is any."""
    lines = made.averages if averages else made.lines
    axes = [key for key in made.head.axes if not (averages and key in made.head.over)]
    titles = heads(made.head.axes)
    remarks = any(line.remark for line in lines)
    head = [*(titles[key] for key in axes), "method", "error", *(["points"] if averages else [])]
    rows = [head + (["remark"] if remarks else [])]
    for line in lines:
        at = [shown(made.head.axes[key], line.values[key]) for key in axes]
        error = ABSENT if line.error is None else str(line.error)
        count = [str(line.count)] if averages else []
        rows.append([*at, line.label, error, *count, *([line.remark] if remarks else [])])
    return rows


def to_rich(made: Overview, averages: bool = False) -> RichTable:
    """For the terminal."""
    head, *rows = grid(made, averages)
    table = RichTable(
        title=Text(made.head.name), caption=Text(made.caption(averages)), caption_justify="left", box=SIMPLE
    )
    for name in head:
        table.add_column(Text(name), justify="right" if name in ("error", "points") else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def to_markdown(made: Overview, averages: bool = False) -> str:
    """A Markdown table with its caption below."""
    head, *rows = grid(made, averages)
    rule = ["---:" if name in ("error", "points") else "---" for name in head]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *escaped)]
    return "\n".join([*lines, "", made.caption(averages), ""])


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
    style = Markup((files("ctta.report") / "style.css").read_text(encoding="utf-8"))  # our own file
    template = (files("ctta.report") / "sweep.html.jinja").read_text(encoding="utf-8")
    links = [f"points/{line.point}/report.html" for line in made.lines]
    parts: list[tuple[str, list[list[str]], list[str]]] = [("Points", grid(made), links)]
    if made.averages:
        parts.insert(0, ("Averages", grid(made, True), []))
    captions = [made.caption(name == "Averages") for name, _, _ in parts]
    return environment.from_string(template).render(head=made.head, parts=parts, captions=captions, style=style)


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
