"""Tables that are kept apart from their records."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ctta.base.errors import StateError
from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import Head, SweepFolder
from ctta.report import kept, reports
from run_folders import TinyRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = TinyRun(tmp_path / "runs" / "mine").add("source", [5] * 4).add("tent", [1, 2, 3, 3])
    head = made.folder.run()
    stream = {**head.stream, "files": {"data": "d1", "weights": "w2"}}
    made.folder.write_run(replace(head, command="ctta run mine.yaml", stream=stream, environment={"commit": "c3"}))
    return made.folder.path


def keep(run: Path) -> Path:
    return kept.keep(reports.load(run), run.parents[1] / "results" / "mine")


def test_a_kept_table_says_how_it_was_made(run: Path) -> None:
    path = keep(run)
    about = json.loads(path.read_text())
    assert path.name == "mine.json"
    assert (about["records"], about["command"], about["seeds"]) == ("../runs/mine", "ctta run mine.yaml", [0])
    assert about["stream"]["files"] == {"data": "d1", "weights": "w2"}
    assert about["environment"] == {"commit": "c3"}
    assert "TENT,tent,0,15.0,30.0,22.5" in path.with_suffix(".csv").read_text()


@pytest.mark.parametrize("name", ["a", "a.csv", "a.json", "version-1.5"])
def test_a_name_may_have_any_ending(run: Path, name: str) -> None:
    path = kept.keep(reports.load(run), run / name)
    assert path.name == ("a.json" if name.startswith("a") else "version-1.5.json")
    assert kept.check(path)


def test_what_was_kept_agrees_with_its_records(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = keep(run)
    monkeypatch.chdir(run)  # the folder of the records is seen from the file, not from here
    assert kept.check(path).startswith(f"{path.with_suffix('.csv')} agrees with its records in {run}")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("22.5", "22.4", "TENT, mean: it has '22.4', and the records make '22.5'."),
        ("15.0,30.0", "15.0,", "TENT, fog: it has '', and the records make '30.0'."),
        ("TENT,", "tent,", "tent, label: it has 'tent', and the records make 'TENT'."),
        ("TENT,tent,0,", "", "TENT"),
    ],
)
def test_a_changed_table_is_found(run: Path, before: str, after: str, words: str) -> None:
    path = keep(run)
    table = path.with_suffix(".csv")
    text = table.read_text()
    assert before in text
    table.write_text(text.replace(before, after))
    with pytest.raises(StateError, match=re.escape(words)):
        kept.check(path)


def test_a_missing_row_is_found(run: Path) -> None:
    path = keep(run)
    table = path.with_suffix(".csv")
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(StateError, match="It has 1 rows, and the records make 2"):
        kept.check(path)


def test_times_and_new_columns_do_not_matter(run: Path) -> None:
    assert kept.differences("label,mean,peak_memory_mb\na,1.0,9\n", "label,mean,peak_memory_mb,new\na,1.0,8,x\n") == []
    assert kept.differences("label,mean,old\na,1.0,9\n", "label,mean\na,1.0\n") != []


def test_records_that_are_not_here(run: Path) -> None:
    path = keep(run)
    elsewhere = run.parent / "elsewhere"
    shutil.move(run, elsewhere)
    with pytest.raises(StateError, match=r"The records of .*mine\.csv are not here: there is no .*mine"):
        kept.check(path)
    assert "agrees" in kept.check(path, elsewhere)


def test_a_table_that_names_no_records(run: Path) -> None:
    path = keep(run)
    path.write_text('{"command": "unknown"}')  # as of an early table, which names no run either
    with pytest.raises(StateError, match=r"mine\.json does not say where its records are"):
        kept.check(path)
    assert "agrees" in kept.check(path, run)


@pytest.mark.parametrize("given", [False, True])
def test_records_of_another_run_are_told_though_the_numbers_are_the_same(run: Path, given: bool) -> None:
    path = keep(run)
    folder = RunFolder(run)
    folder.write_run(replace(folder.run(), identity="def"))
    with pytest.raises(StateError, match=r"It was made by run abc, and the records are of run def: data, weights or"):
        kept.check(path, run if given else None)


def test_a_table_without_its_csv(run: Path) -> None:
    path = keep(run)
    path.with_suffix(".csv").unlink()
    with pytest.raises(StateError, match=r"There is no .*mine\.csv"):
        kept.check(path)


@pytest.mark.parametrize("content", ["", "[]", '{"records": 3}', '{"identity": 3}', '{"points": {"a": 3}}'])
def test_a_file_that_is_about_no_table(run: Path, content: str) -> None:
    path = keep(run)
    path.write_text(content)
    with pytest.raises(StateError, match="is damaged"):
        kept.check(path)


def test_the_table_of_a_sweep(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    folder.write(Head("mine", {"data.batch": [5]}, (), {"b5": {"data.batch": 5}}, "ctta run grid.yaml"))
    TinyRun(folder.point("b5").path).add("source", [5] * 4)
    path = kept.keep(reports.load(folder.path), tmp_path / "grid")
    about = json.loads(path.read_text())
    assert (about["command"], about["points"]["b5"]["seeds"]) == ("ctta run grid.yaml", [0])
    assert "agrees" in kept.check(path)
    point = folder.point("b5")
    head = point.run()
    point.write_run(replace(head, identity="def"))
    with pytest.raises(StateError, match=r"b5 was made by run abc, and the records are of run def"):
        kept.check(path)
    point.write_run(head)
    path.with_suffix(".csv").write_text(path.with_suffix(".csv").read_text().replace("50.00", "49.99"))
    with pytest.raises(StateError, match="SOURCE, error"):
        kept.check(path)
