"""What is made from the folder of a run or a sweep: tables for the terminal, files next to the records, and a page.

    table.csv, .md, .tex        errors by method and domain
    metrics.csv, .json, .tex    gains over the baseline, calibration, recovery, costs
    comparison.csv, .json, .tex comparison with the paper, if the experiment names a table of it
    report.html                 the page

A sweep's folder has summary.csv, .json, .md, .tex and report.html; averages.csv, .md, .tex if axes are averaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ctta.base.fileio import write_atomically
from ctta.base.text import one_line
from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import SweepFolder
from ctta.report import verdict
from ctta.report.page import page
from ctta.report.results import Results
from ctta.report.tables import errors, paper, render, summary, sweep
from ctta.report.tables.errors import ErrorTable
from ctta.report.tables.paper import PaperComparison
from ctta.report.tables.render import Table
from ctta.report.tables.summary import MetricsTable
from ctta.report.tables.sweep import SweepErrors


@dataclass(frozen=True)
class RunReport:
    """Everything that is shown of one run, complete or not."""

    results: Results
    errors: ErrorTable
    metrics: MetricsTable
    comparison: PaperComparison | None

    @classmethod
    def load(cls, folder: RunFolder | Path | str) -> RunReport:
        """Read a run folder, once."""
        results = Results.load(folder)
        table = errors.build(results)
        return cls(results, table, summary.build(results, table), paper.build((results, table)))

    @property
    def folder(self) -> RunFolder:
        return self.results.folder

    @property
    def csv(self) -> str:
        """The table as a file of commas."""
        return render.to_csv(errors.data(self.errors))

    def page(self) -> str:
        """One self-contained HTML page."""
        return page.make(self.results, self.errors, self.metrics, self.comparison, self._files())

    def to_rich(self, width: int) -> list[RenderableType]:
        """For the terminal: tables and the notes of the experiment."""
        metrics = [summary.layouts(self.metrics)] if self.errors.labelled else []
        notes = [Text(one_line(str(note))) for note in (*self.results.run.notes, *self._told())]
        return [*_rich(width, self.comparison, errors.layouts(self.errors), *metrics), *notes]

    def _told(self) -> list[str]:
        """What the guard says of samples without labels."""
        found = None if self.errors.labelled else verdict.of(self.results)
        events = [f"Guard, batch {event.batch}: {event.words}" for event in self.results.run.events]
        return [*events, f"{found.headline} {found.advice}"] if found else []

    def to_json(self) -> dict[str, Any]:
        """Plain data, unrounded."""
        return _data(self.errors, self.comparison) | {"metrics": render.plain_data(self.metrics)}

    def write(self) -> Path:
        """Write all files into the run folder; returns the page."""
        return _write(self.folder.path, self._files() | {"report.html": self.page()})

    def _files(self) -> dict[str, str]:
        """The texts of all files but the page."""
        markdown = [render.to_markdown(errors.table(self.errors))]
        texts = {
            "table.csv": self.csv,
            "table.tex": render.to_latex(errors.table(self.errors, costs=False)),
            "metrics.csv": render.to_csv(summary.data(self.metrics)),
            "metrics.tex": render.to_latex(summary.table(self.metrics)),
            "metrics.json": json.dumps(render.plain_data(self.metrics), indent=1),
        }
        if self.comparison:
            texts |= _comparison_files(self.comparison)
            markdown += [f"## {one.title}\n\n{render.to_markdown(one)}" for one in paper.tables(self.comparison)]
        return texts | {"table.md": "\n".join(markdown)}


@dataclass(frozen=True)
class SweepReport:
    """Everything that is shown of a sweep: its points, what they have in common, and the comparison of their mean."""

    folder: SweepFolder
    points: Mapping[str, RunReport]  # those that have begun
    errors: SweepErrors
    comparison: PaperComparison | None  # if all axes are averaged

    @classmethod
    def load(cls, folder: SweepFolder) -> SweepReport:
        """Read the folders of all points, once."""
        head = folder.head()
        points = {slug: RunReport.load(point) for slug, point in folder.begun(head).items()}
        made = sweep.build(head, {slug: point.errors for slug, point in points.items()})
        averaged = bool(points) and set(head.axes) == set(head.over)
        pairs = [(point.results, point.errors) for point in points.values()]
        return cls(folder, points, made, paper.build(*pairs) if averaged else None)

    @property
    def csv(self) -> str:
        """The table of all points as a file of commas."""
        return render.to_csv(sweep.data(self.errors))

    def to_rich(self, width: int) -> list[RenderableType]:
        """For the terminal: averages if there are any, else all points."""
        return _rich(width, self.comparison, sweep.layouts(self.errors, bool(self.errors.averages)))

    def to_json(self) -> dict[str, Any]:
        """Plain data, unrounded."""
        return _data(self.errors, self.comparison)

    def write(self) -> Path:
        """Write all files of all points and of the sweep; returns the sweep's page."""
        for point in self.points.values():
            point.write()
        texts = _comparison_files(self.comparison) if self.comparison else {}
        for name, averages in (("summary", False), ("averages", True)):
            if not averages or self.errors.averages:
                table = sweep.table(self.errors, averages)
                texts[f"{name}.csv"] = render.to_csv(sweep.data(self.errors, averages))
                texts |= {f"{name}.md": render.to_markdown(table), f"{name}.tex": render.to_latex(table)}
        texts |= {"summary.json": json.dumps(_data(self.errors), indent=1)}
        return _write(self.folder.path, texts | {"report.html": page.make_sweep(self.errors, texts)})


def load(path: Path) -> RunReport | SweepReport:
    """The report of a run folder or of a sweep's."""
    folder = SweepFolder(path)
    return SweepReport.load(folder) if folder.is_one() else RunReport.load(path)


def _rich(width: int, comparison: PaperComparison | None, *layouts: Iterable[Table]) -> list[RenderableType]:
    if comparison:
        means, *by_domain = paper.tables(comparison)
        layouts += ([render.lacking(means, [one.title for one in by_domain], "comparison.csv")],)
    return [render.to_rich(one, width) for one in layouts]


def _data(errors: ErrorTable | SweepErrors, comparison: PaperComparison | None = None) -> dict[str, Any]:
    more = {"comparison": _comparison_data(comparison)} if comparison else {}
    return render.plain_data(errors, unit="percent error", **more)


def _comparison_data(made: PaperComparison) -> dict[str, Any]:
    return render.plain_data(made, summary=made.summary(), unit="percent error")


def _comparison_files(made: PaperComparison) -> dict[str, str]:
    return {
        "comparison.csv": render.to_csv(paper.data(made)),
        "comparison.json": json.dumps(_comparison_data(made), indent=1),
        "comparison.tex": "\n".join(map(render.to_latex, paper.tables(made))),
    }


def _write(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, content in texts.items():
        write_atomically(folder / name, content.encode(), durable=False)  # it can be made again
    return folder / "report.html"
