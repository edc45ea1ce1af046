"""`ctta report`: the same result, from the records."""

from __future__ import annotations

import json

from command_line import ctta


def test_it_shows_what_the_run_showed(tmp_path, spec):
    folder = tmp_path / "run"
    code, out, err = ctta("run", spec(paper="table1"), "--out", folder)
    assert code == 0, err
    files = ("report.html", "table.csv", "table.md", "metrics.csv", "metrics.json", "comparison.csv", "comparison.json")
    for name in files:
        (folder / name).unlink()
    assert ctta("report", folder) == (0, out, "")
    assert all((folder / name).is_file() for name in files)
    values = json.loads(ctta("report", folder, "--json")[1])
    assert values["comparison"] == json.loads((folder / "comparison.json").read_text())
    assert values["report"] == str(folder / "report.html")


def test_a_folder_without_a_run_is_an_error(tmp_path):
    code, _, err = ctta("report", tmp_path)
    assert code == 2
    assert "not a run folder" in err


def test_a_kept_table_is_checked(tmp_path, spec):
    folder, table = tmp_path / "run", tmp_path / "tables" / "mine.csv"
    code, _, err = ctta("run", spec(), "--out", folder)
    assert code == 0, err
    assert ctta("report", folder, "--keep", table)[0] == 0
    about = json.loads(table.with_suffix(".json").read_text())
    assert set(about["stream"]["files"]) == {"data", "weights"}
    code, out, err = ctta("report", "--check", table.with_suffix(".json"))
    assert (code, err) == (0, "")
    assert "agrees with its records" in out
    table.write_text(table.read_text().replace("Source", "Sauce"))
    code, out, err = ctta("report", "--check", table.with_suffix(".json"))
    assert (code, out) == (2, "")
    assert "does not agree" in err


def test_nothing_to_report_is_an_error():
    code, _, err = ctta("report")
    assert code == 2
    assert "nothing to report" in err
