"""Processes leave what one process leaves, whatever happens to them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import ctta, start
from ctta.cli.app import app
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.running.engines import Processes
from ctta.running.run import Status, run
from gates import PATIENCE, Gate
from run_folders import assert_same_runs

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog"], "images": 100, "batch": 10},
    "model": {"name": None, "factory": "gates:dies_once"},
    "methods": ["source", {"method": "tent", "lr": 0.01}, {"method": "tent", "name": "more", "lr": 0.1}],
}


@pytest.mark.slow
@pytest.mark.parametrize(("every", "workers"), [(0.0, 2), (1e9, 1)], ids=["from its checkpoint", "from the start"])
def test_a_killed_worker_changes_nothing(tmp_path, monkeypatch, every, workers):
    monkeypatch.setenv("DEATH", str(tmp_path / "death"))
    whole, folder = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    for _ in run(experiments.make(SPEC), whole.path):
        pass
    assert not (tmp_path / "death").exists(), "only workers die"
    steps = []
    for status in run(experiments.make(SPEC), folder.path, Processes(workers=workers, checkpoint_seconds=every)):
        if status.last is not None and not status.last.over:
            steps.append((status.last.job.cell.cell, status.last.done))
    assert (tmp_path / "death").exists()
    repeated = len(steps) - len(set(steps))
    assert repeated == 0 if every == 0 else repeated > 0, "batches since the checkpoint are computed again"
    assert status.failures == ()
    assert (status.jobs, status.over, status.batches, status.done) == (3, 3, 60, 60)
    assert not multiprocessing.active_children()
    assert_same_runs(whole, folder)
    assert folder.run().environment["threads"] == 1
    assert not list(folder.path.rglob("*.safetensors"))
    again = list(run(experiments.make(SPEC), folder.path, Processes()))
    assert again == [Status(folders=1, opened=1, batches=60, done=60)]


@pytest.mark.slow
def test_ctrl_c_stops_all_workers_and_the_same_command_goes_on(tmp_path, monkeypatch):
    model = {"name": None, "factory": "gates:waits"}
    spec = SPEC | {"model": model, "grid": {"method.lr": [0.01, 0.1]}, "methods": ["tent"]}
    path, out = tmp_path / "spec.yaml", tmp_path / "run"
    path.write_text(json.dumps(spec))
    words = ("run", path, "-o", out, "--engine", "local", "--workers", "2", "--checkpoint-seconds", "0.2")
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))
    gate = Gate(tmp_path / "gate")
    process = start(*words, start_new_session=True)
    gate.wait_for(workers=2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: parent and children
    _, err = process.communicate(timeout=PATIENCE)  # ends when the last process that may write has ended
    assert process.returncode == 130, err
    assert "Stopped." in err
    assert "the same command continues from there" in " ".join(err.split())
    assert "Traceback" not in err
    done = _lines(out)
    assert 0 < done < 40
    monkeypatch.delenv("GATE")
    code, shown, err = ctta(*words, "--json")
    assert code == 0, err
    assert _lines(out) == 40
    assert [line["values"] for line in json.loads(shown)["lines"]] == [{"method.lr": 0.01}, {"method.lr": 0.1}]
    assert {"summary.csv", "summary.md", "sweep.json", "report.html"} <= {one.name for one in out.iterdir()}
    assert (out / "points" / "lr-0.01" / "report.html").is_file()
    assert json.loads(ctta("report", out, "--json")[1])["lines"] == json.loads(shown)["lines"]


def test_options_that_do_not_belong_together(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC))
    for words, text in (
        (("--engine", "locl"), "Did you mean 'local'?"),
        (("--workers", "2"), "belong to an engine"),
        (("--engine", "local", "--address", "x:1"), "--address is that of a Ray cluster"),
    ):
        made = CliRunner().invoke(app, ["run", str(path), *words])
        assert made.exit_code == 2
        assert text in " ".join(made.output.split())


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))
