"""Processes leave what one process leaves, whatever happens to them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import ctta, start
from ctta import ConfigError
from ctta.cli.app import app
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import Cell, RunFolder
from ctta.running import engines
from ctta.running.engines.job import LOSSES, Event, Job, Losses, Plan
from run_folders import assert_same_runs

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog"], "images": 100, "batch": 10},
    "model": {"name": None, "factory": "tiny:slow"},
    "methods": ["source", {"method": "tent", "lr": 0.01}, {"method": "tent", "name": "more", "lr": 0.1}],
}

PATIENCE = 300  # seconds, for machines with other work


def test_a_killed_worker_changes_nothing(tmp_path):
    whole = RunFolder(tmp_path / "whole")
    for _ in engines.here(engines.plan([(experiments.make(SPEC), whole)]).jobs):
        pass
    folder = RunFolder(tmp_path / "killed")
    plan = engines.plan([(experiments.make(SPEC), folder)], threads=1)
    assert (len(plan.jobs), plan.batches, plan.done) == (3, 60, 0)
    busy, victim, steps = set(), None, []
    for state in engines.follow(plan, engines.local(plan.jobs, workers=2, checkpoint_seconds=0.1)):
        if 5 < state.last.done < 20:
            busy.add(state.last.job.cell.cell)
        if len(busy) == 2 and victim is None:  # both workers are half-way
            victim = multiprocessing.active_children()[0]
            os.kill(victim.pid, signal.SIGKILL)
        steps.append((state.last.job.cell.cell, state.last.done))
    assert victim is not None
    assert len(steps) > len(set(steps)), "batches since the checkpoint are computed again"
    assert state.failures == []
    assert (state.over, state.batches) == (3, 60)
    assert not multiprocessing.active_children()
    assert_same_runs(whole, folder)
    assert folder.run().environment["threads"] == 1
    assert not list(folder.path.rglob("*.pt"))
    again = engines.plan([(experiments.make(SPEC), folder)], threads=1)
    assert (again.jobs, again.done) == ((), 60)


def test_a_cell_that_fails_does_not_take_others_along(tmp_path):
    spec = SPEC | {"model": {"name": None, "factory": "tiny:without_norm"}, "methods": ["tent", "source"]}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    code, out, err = ctta("run", path, "-o", tmp_path / "run", "-q", "--engine", "local", "--workers", "1")
    assert code == 1, err
    assert "failed tent-s0" in err
    assert "1 run failed" in err
    assert "Traceback" not in err, "the error has a sentence of its own"
    assert RunFolder(tmp_path / "run").done("source-s0") is not None
    assert "Source" in out


def test_ctrl_c_stops_all_workers_and_the_same_command_goes_on(tmp_path):
    spec = SPEC | {"grid": {"method.lr": [0.01, 0.1]}, "methods": ["tent"]}
    path, out = tmp_path / "spec.yaml", tmp_path / "run"
    path.write_text(json.dumps(spec))
    words = ("run", path, "-o", out, "--engine", "local", "--workers", "2", "--checkpoint-seconds", "0.2")
    process = start(*words, start_new_session=True)
    _wait(lambda: _lines(out) >= 6)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: parent and children
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Stopped." in err
    assert "the same command continues from there" in " ".join(err.split())
    assert "Traceback" not in err
    assert 6 <= _lines(out) < 40
    _wait(lambda: not _somebody(process.pid))
    code, shown, err = ctta(*words, "--json")
    assert code == 0, err
    assert _lines(out) == 40
    assert [line["values"] for line in json.loads(shown)["lines"]] == [{"method.lr": 0.01}, {"method.lr": 0.1}]
    assert {"summary.csv", "summary.md", "sweep.json", "report.html"} <= {one.name for one in out.iterdir()}
    assert (out / "points" / "lr-0.01" / "report.html").is_file()
    assert json.loads(ctta("report", out, "--json")[1])["lines"] == json.loads(shown)["lines"]


def test_what_is_wrong_with_any_run_is_said_before_one_is_started(tmp_path):
    bad = [experiments.make(SPEC | {"data": {"dataset": "arrays", "path": str(tmp_path / name)}}) for name in "ab"]
    runs = [(one, RunFolder(tmp_path / f"run{number}")) for number, one in enumerate([*bad, bad[0]])]
    with pytest.raises(ConfigError) as caught:
        engines.plan(runs)
    text = str(caught.value)
    assert text.count(str(tmp_path / "a")) == text.count(str(tmp_path / "b")) == 1


def test_a_job_is_given_up_when_it_no_longer_goes_forward():
    job = Job(experiments.make(SPEC), Path("run"), Cell("a-s0", "a", "A", 0, "", {}), 10)
    losses = Losses()
    assert [losses.again(job) for _ in range(LOSSES)] == [True] * (LOSSES - 1) + [False]
    losses = Losses()
    for done in range(1, 9):
        losses.forward(job, done)
        assert losses.again(job)
    for _ in range(LOSSES - 2):
        losses.forward(job, 8)  # the same batch again is no way forward
        assert losses.again(job)
    assert not losses.again(job)


def test_the_state_never_goes_back():
    job = Job(experiments.make(SPEC), Path("run"), Cell("a-s0", "a", "A", 0, "", {}), 10)
    events = [Event(job, 5), Event(job, 2), Event(job, 6), Event(job, 10, over=True)]
    plan = Plan((job,), batches=30, done=20)
    assert [state.batches for state in engines.follow(plan, events)] == [25, 25, 26, 30]


def test_options_that_do_not_belong_together(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC))
    for words, text in (
        (("--engine", "locl"), "Did you mean 'local'?"),
        (("--workers", "2"), "belong to an engine"),
        (("--engine", "local", "--address", "x:1"), "--address is that of a Ray cluster"),
    ):
        error = CliRunner().invoke(app, ["run", str(path), *words]).exception
        assert isinstance(error, ConfigError)
        assert text in str(error)


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _somebody(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))
