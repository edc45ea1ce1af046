"""A run folder is read once, and again only for what was appended."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from ctta.base.errors import StateError
from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import Head, SweepFolder
from ctta.report import reports
from ctta.report.results import Results
from fake_run import write_fake_run
from run_folders import TinyRun

WATCHED: list[Counter[str]] = []  # an audit hook cannot be removed: it counts only while somebody watches


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if WATCHED and event == "open" and isinstance(arguments[0], str):
        WATCHED[-1][arguments[0]] += "r" in str(arguments[1])


sys.addaudithook(_count)


@contextmanager
def opened() -> Iterator[Counter[str]]:
    """How often each file is opened for reading."""
    WATCHED.append(Counter())
    try:
        yield WATCHED[-1]
    finally:
        WATCHED.pop()


def show(path: Path) -> None:
    """Everything that `ctta report` shows and writes."""
    made = reports.load(path)
    made.write()
    made.to_json()
    console = Console(quiet=True)
    for one in made.to_rich(120):
        console.print(one)


def of_folder(counts: Counter[str], path: Path) -> dict[str, int]:
    return {name.removeprefix(f"{path}/"): count for name, count in counts.items() if name.startswith(str(path))}


def small(path: Path) -> RunFolder:
    folder = write_fake_run(path, seeds=(0, 1), methods=("source", "dss"), domains=("fog", "snow"), batches=2, size=20)
    head = json.loads((path / "run.json").read_text())
    head["experiment"] |= {"paper": "table1", "methods": []}
    (path / "run.json").write_text(json.dumps(head))
    return folder


def test_showing_a_result_opens_each_file_once(tmp_path: Path) -> None:
    small(tmp_path)
    with opened() as counts:
        show(tmp_path)
    read = {name: count for name, count in of_folder(counts, tmp_path).items() if count}
    cells = [f"{method}-s{seed}" for method in ("source", "dss") for seed in (0, 1)]
    wanted = ["run.json", "dss-s0.samples.npz", *(f"{cell}{end}" for cell in cells for end in (".jsonl", ".done.json"))]
    assert read == dict.fromkeys(wanted, 1)
    assert (tmp_path / "comparison.csv").is_file(), "the comparison was shown too"


def test_a_sweep_opens_each_file_once(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    points = {f"lr-{value}": {"method.lr": value} for value in (1, 2)}
    folder.write(Head("mine", {"method.lr": [1, 2]}, ("method.lr",), points))
    for slug in points:
        small(folder.point(slug).path)
    with opened() as counts:
        show(tmp_path)
    read = of_folder(counts, tmp_path)
    assert read["points/lr-2/run.json"] == read["points/lr-2/dss-s1.jsonl"] == read["sweep.json"] == 1
    assert set(read.values()) <= {0, 1}


def test_what_is_read(tmp_path: Path) -> None:
    folder = TinyRun(tmp_path).add("tent", [1, 2, 3, 4]).add("dss", [1], done=False).folder
    results = Results.load(folder)
    tent, dss = results.method_runs
    assert [record.wrong for record in tent.records] == [1, 2, 3, 4]
    assert tent.records == tuple(folder.records("tent-s0"))
    assert (tent.done, dss.done) == (folder.done("tent-s0"), None)
    assert {label: [one.cell.cell for one in runs] for label, runs in results.by_label().items()} == {
        "TENT": ["tent-s0"],
        "DSS": ["dss-s0"],
    }
    with pytest.raises(StateError, match="not a run folder"):
        Results.load(tmp_path / "nothing")


def test_only_what_was_appended_is_read_again(tmp_path: Path) -> None:
    run = TinyRun(tmp_path).add("tent", [1, 2, 3, 4]).add("dss", [1, 2], done=False)
    before = Results.load(tmp_path)
    path = run.folder.records_path("dss-s0")
    lines = path.read_text().splitlines(keepends=True)
    third, fourth = (line.replace('"step": 1', f'"step": {step}') for line, step in ((lines[1], 2), (lines[1], 3)))
    path.write_text("x" * (len("".join(lines)) - 1) + "\n" + third + fourth[:20])  # what was read is not looked at
    with opened() as counts:
        after = before.newer()
    assert of_folder(counts, tmp_path) == {"dss-s0.jsonl": 1}, "TENT is complete"
    assert after.method_runs[0] is before.method_runs[0]
    assert [record.step for record in after.method_runs[1].records] == [0, 1, 2], "a line that is cut short waits"
    with path.open("a") as file:
        file.write(fourth[20:])
    assert [record.step for record in after.newer().method_runs[1].records] == [0, 1, 2, 3]
    assert after.newer().method_runs[1].records[:3] == after.method_runs[1].records
    same = after.newer()
    assert same.newer().method_runs[1] is same.method_runs[1], "nothing new"


@pytest.mark.parametrize("seconds", ["0.5", "0.25"])
def test_a_run_that_went_back_to_its_checkpoint_is_read_anew(tmp_path: Path, seconds: str) -> None:
    """The file may be shorter than before, or as long with lines that begin elsewhere."""
    run = TinyRun(tmp_path).add("dss", [1, 2, 3], done=False)
    before = Results.load(tmp_path)
    path = run.folder.records_path("dss-s0")
    lines = path.read_text().replace('"seconds": 0.5', f'"seconds": {seconds}').splitlines(keepends=True)
    for kept in (lines[:1], [*lines, lines[2].replace('"step": 2', '"step": 3')]):
        path.write_text("".join(kept))
        assert [record.step for record in before.newer().method_runs[0].records] == list(range(len(kept)))


def test_words_of_older_folders(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    for stored, shown in (("told", "known"), ("hidden", "unknown"), ("detected", "detected"), ("known", "known")):
        run.stream["boundaries"] = stored
        assert Results.load(run.add("tent", [1] * 4).folder).boundaries == shown
        run.cells.clear()
