"""`ctta report`: tables and page from the records of a run or a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument

from ctta.cli.options import AsJson
from ctta.cli.terminal import say

if TYPE_CHECKING:
    from ctta.records.run_folder import RunFolder
    from ctta.records.sweep_folder import SweepFolder

EXAMPLES = "Example:  ctta report runs/demo"


def command(
    folder: Annotated[Path, Argument(help="Folder of a run or a sweep, complete or not.")], as_json: AsJson = False
) -> None:
    """Write the tables and the page of a run folder again, from its records."""
    from ctta.records.run_folder import RunFolder
    from ctta.records.sweep_folder import SweepFolder

    swept = SweepFolder(folder)
    printed, page, values = _sweep(swept) if swept.is_one() else _run(RunFolder(folder))
    if as_json:
        print(json.dumps({**values, "report": str(page)}))
        return
    for one in printed:
        Console().print(one, soft_wrap=isinstance(one, str), highlight=False)
    say(f"Report: {page.resolve().as_uri()}")


def _run(folder: RunFolder) -> tuple[list[Any], Path, dict[str, Any]]:
    """Write the tables and the page of a run; return what is printed, the page, and the values."""
    from ctta import report
    from ctta.report.tables import errors, paper, summary

    table, comparison = errors.build(folder), paper.write(folder.path, folder)
    metrics = summary.build(folder, table)
    markdown = [errors.to_markdown(table), *([paper.to_markdown(comparison)] if comparison else [])]
    (folder.path / "table.csv").write_text(errors.to_csv(table))
    (folder.path / "table.md").write_text("\n".join(markdown))
    (folder.path / "metrics.csv").write_text(summary.to_csv(metrics))
    (folder.path / "metrics.json").write_text(json.dumps(summary.to_json(metrics), indent=1))
    width = Console().width
    printed: list[Any] = [errors.to_rich(table, width), *([summary.to_rich(metrics, width)] if table.labelled else [])]
    printed += [*([paper.to_rich(comparison)] if comparison else []), *folder.run().notes]
    values = {**errors.to_json(table), "metrics": summary.to_json(metrics)}
    return printed, report.write(folder), values | ({"comparison": paper.to_json(comparison)} if comparison else {})


def _sweep(folder: SweepFolder) -> tuple[list[Any], Path, dict[str, Any]]:
    """Write those of every point and of the sweep; the averages are printed, or else every point."""
    from ctta.report.tables import paper, sweep

    points = folder.begun().values()
    for point in points:
        _run(point)
    made = sweep.build(folder)
    averaged = points and set(made.head.axes) == set(made.head.over)
    comparison = paper.write(folder.path, *points) if averaged else None
    printed: list[Any] = [sweep.to_rich(made, bool(made.averages), Console().width)]
    printed += [paper.to_rich(comparison)] if comparison else []
    values = sweep.to_json(made) | ({"comparison": paper.to_json(comparison)} if comparison else {})
    return printed, sweep.write(folder, made), values
