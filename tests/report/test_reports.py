"""What is written into the folders of runs and sweeps, in every form."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from ctta.records.sweep_folder import Head, SweepFolder
from ctta.report import reports
from ctta.report.reports import RunReport, SweepReport
from run_folders import TinyRun

RESULTS = Path(__file__).parents[2] / "results"
FILES = {"table.csv", "table.md", "table.tex", "metrics.csv", "metrics.json", "metrics.tex", "report.html"}


def names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_files_of_a_run(tmp_path: Path) -> None:
    run = TinyRun(tmp_path).add("source", [5] * 4).add("tent_x", [1, 2, 3, 3])
    before = names(tmp_path)
    made = reports.load(tmp_path)
    assert isinstance(made, RunReport)
    assert made.write() == run.folder.path / "report.html"
    assert names(tmp_path) - before == FILES
    assert r"TENT\_X & \textbf{15.0} & \textbf{30.0} & \textbf{22.5} \\" in (tmp_path / "table.tex").read_text()
    assert "| TENT_X | **15.0** | **30.0** | **22.5** |" in (tmp_path / "table.md").read_text()
    assert r"TENT\_X & \textbf{22.5} & $-$27.5" in (tmp_path / "metrics.tex").read_text()


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    made = RunReport.load(TinyRun(tmp_path).add("source", [], done=False).add("tent", [], done=False).folder)
    made.write()
    console = Console(width=80, file=io.StringIO(), record=True, color_system=None)
    console.print(*made.to_rich(80))
    assert "[1] waiting." in console.export_text()
    assert r"TENT\textsuperscript{1} & -- & -- & -- \\" in (tmp_path / "table.tex").read_text()


def test_files_of_a_sweep(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.write(
        Head("mine", {"data.batch": [5, 9]}, ("data.batch",), {"b5": {"data.batch": 5}, "b9": {"data.batch": 9}})
    )
    TinyRun(folder.point("b5").path).add("source", [5] * 4).add("tent", [1] * 4)
    made = reports.load(tmp_path)
    assert isinstance(made, SweepReport)
    made.write()
    forms = {f"{name}.{form}" for name in ("summary", "averages") for form in ("csv", "md", "tex")}
    assert names(tmp_path) == {"points", "sweep.json", "summary.json", "report.html", *forms}
    assert names(folder.point("b5").path) > FILES
    assert r"TENT & \textbf{10.0} \\" in (tmp_path / "summary.tex").read_text()


@pytest.mark.parametrize("name", ["cifar10_resnet20", "embedded_all"])
def test_tables_have_the_columns_of_the_committed_ones(tmp_path: Path, name: str) -> None:
    """A table of the same domains and seeds; what is measured is compared, not the numbers."""
    with (RESULTS / f"{name}.csv").open() as file:
        committed = next(csv.reader(file))
    seeds = (0, 1) if "mean sd" in committed else (0,)
    run = TinyRun(tmp_path, [(domain, 5) for domain in committed[3 : committed.index("mean")]])
    for seed in seeds:
        run.add("source", [1] * 30, seed=seed)
    RunReport.load(run.folder).write()
    with (tmp_path / "table.csv").open() as file:
        assert next(csv.reader(file)) == committed
