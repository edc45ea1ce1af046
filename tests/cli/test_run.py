"""`ctta run`: the result, the failures, and Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import held
from command_line import PATIENCE, ctta, start, wait_for
from ctta.records.run_folder import RunFolder


def test_it_ends_with_table_and_page(tmp_path, spec):
    code, out, err = ctta("run", spec(), "--out", tmp_path / "run")
    assert code == 0, err
    assert "Source" in out
    assert "TENT" in out
    assert "report.html" in out
    assert "vs Source" in out
    assert {"report.html", "table.csv", "table.md", "metrics.csv", "metrics.json", "run.json", "tent-s0.jsonl"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert "ctta run" in json.loads((tmp_path / "run" / "run.json").read_text())["command"]
    code, again, err = ctta("run", spec(), "--out", tmp_path / "run")
    assert (code, again) == (0, out)
    assert "was complete already" in err


def test_json_is_json_and_nothing_else(tmp_path, spec):
    code, out, err = ctta("run", spec(), "--out", tmp_path / "run", "--json", "--set", "data.images=20")
    assert (code, err) == (0, "")
    assert Path(json.loads(out)["report"]).is_file()


def test_the_paper_s_table_can_be_named_afterwards(tmp_path, spec):
    folder = tmp_path / "run"
    code, out, err = ctta("run", spec(), "--out", folder)
    assert code == 0, err
    assert "CIFAR10-C" not in out
    code, out, err = ctta("run", spec(), "--out", folder, "--set", "paper=table1")
    assert code == 0, err
    assert "was complete already" in err, "the table decides no number"
    assert "Table 1, CIFAR10-C" in out
    assert "only the order is compared" in " ".join(out.split())


def test_a_method_that_fails_does_not_stop_the_others(tmp_path, spec):
    path = spec(model={"name": None, "factory": "tiny:without_norm"}, methods=["tent", "source"])
    code, out, err = ctta("run", path, "--out", tmp_path / "run", "-q")
    assert code == 1, err
    assert "failed tent-s0" in err
    assert "1 run failed" in err
    assert "Traceback" not in err, "the error has a sentence of its own"
    assert RunFolder(tmp_path / "run").done("source-s0") is not None
    assert "Source" in out


def test_a_file_in_the_place_of_the_run_folder_is_refused(tmp_path, spec):
    (tmp_path / "run").write_text("mine")
    code, _, err = ctta("run", spec(), "--out", tmp_path / "run")
    assert code == 2
    assert "a file of that name is in the way. Give another place to write to." in " ".join(err.split())
    assert "Traceback" not in err
    assert (tmp_path / "run").read_text() == "mine"


def test_a_sweep_is_not_overwritten_by_one_experiment(tmp_path, spec):
    swept = spec(grid={"method.lr": [0.01, 0.1]}, methods=["tent"])
    code, out, err = ctta("run", swept, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    assert [line["values"] for line in json.loads(out)["lines"]] == [{"method.lr": 0.01}, {"method.lr": 0.1}]
    code, _, err = ctta("run", spec(), "--out", tmp_path / "run")
    assert code == 2
    assert "holds a sweep" in err


def test_ctrl_c_keeps_what_was_done(tmp_path, spec, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setenv(held.FOLDER, str(folder))
    words = ("run", spec(model={"name": None, "factory": "held:network"}), "--out", folder, "--quiet")
    process = start(*words)
    wait_for(folder / "held", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"What was done is kept in {folder}; the same command continues from there." in " ".join(err.split())
    assert "Traceback" not in err
    assert sum(path.read_text().count("\n") for path in folder.glob("*.jsonl")) == 1
    monkeypatch.delenv(held.FOLDER)
    assert ctta(*words)[0] == 0
    assert sum(path.read_text().count("\n") for path in folder.glob("*.jsonl")) == 8
