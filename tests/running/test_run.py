"""One way to run an experiment or a sweep, and one rule for what fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import ctta
from ctta import ConfigError, StateError
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.records.run_folder import Cell, RunFolder
from ctta.running.engines import Event, Inline, Job
from ctta.running.run import Status, run, run_folders

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog"], "images": 20, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent"],
}


def last(states) -> Status:
    *_, end = states
    return end


def test_the_status_counts_folders_jobs_and_batches(tmp_path):
    opened, *states = run(experiments.make(SPEC), tmp_path)
    assert opened == Status(folders=1, opened=1, jobs=2, batches=8)
    assert [status.done for status in states] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    assert [status.over for status in states] == [0] * 4 + [1] * 5 + [2]
    assert states[5].last.domain == "gaussian_noise"
    assert last(run(experiments.make(SPEC), tmp_path)) == Status(folders=1, opened=1, batches=8, done=8)


def test_finished_work_is_skipped(tmp_path):
    last(run(experiments.make(SPEC), tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    last(run(experiments.make(SPEC), tmp_path))
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    more = last(run(experiments.make(SPEC | {"seeds": [0]}), tmp_path))
    assert more.jobs == 0


def test_a_sweep_has_a_folder_per_point(tmp_path):
    swept = sweep.make(SPEC | {"methods": ["tent"], "grid": {"method.lr": [0.01, 0.1]}})
    end = last(run(swept, tmp_path))
    assert (end.folders, end.jobs, end.over, end.done, end.batches) == (2, 2, 2, 8, 8)
    assert all(folder.done("tent-s0") is not None for _, folder in run_folders(swept, tmp_path))
    with pytest.raises(StateError, match="holds a sweep, and this is a single experiment"):
        last(run(experiments.make(SPEC), tmp_path))
    last(run(experiments.make(SPEC), tmp_path / "single"))
    with pytest.raises(StateError, match="holds a single run"):
        last(run(swept, tmp_path / "single"))


def test_what_is_wrong_with_any_run_is_reported_before_one_is_started(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    data = {"dataset": "arrays", "path": paths[0]}
    swept = sweep.make(SPEC | {"data": data, "grid": {"data.path": paths, "method.lr": [0.1, 0.2]}})
    with pytest.raises(ConfigError) as caught:
        last(run(swept, tmp_path / "run"))
    assert [str(caught.value).count(path) for path in paths] == [1, 1], "each once, for two points that have it"
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize("words", [(), ("--engine", "local", "--workers", "1")], ids=["inline", "processes"])
def test_a_method_that_fails_does_not_keep_the_others_from_finishing(tmp_path, words):
    spec = SPEC | {"model": {"name": None, "factory": "tiny:without_norm"}, "methods": ["tent", "source"]}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    code, out, err = ctta("run", path, "-o", tmp_path / "run", "-q", *words)
    assert code == 1, err
    assert "failed tent-s0" in err
    assert "1 run failed" in err
    assert "Traceback" not in err, "the error has a sentence of its own"
    assert RunFolder(tmp_path / "run").done("source-s0") is not None
    assert "Source" in out


def test_a_run_in_which_every_method_fails_ends_with_what_failed(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC | {"model": {"name": None, "factory": "tiny:without_norm"}, "methods": ["tent"]}))
    code, _, err = ctta("run", path, "-o", tmp_path / "run", "-q")
    assert code == 1, err
    assert "TENT adapts norm layers and this model has none" in err
    assert "Traceback" not in err


def test_progress_never_goes_back(tmp_path, monkeypatch):
    job = Job(experiments.make(SPEC), Path("run"), Cell("a-s0", "a", "A", 0, "", {}), 10)
    events = [Event(job, 5), Event(job, 2), Event(job, 6), Event(job, 10, over=True)]
    monkeypatch.setattr(Inline, "run", lambda engine, jobs, claimed: (event for event in events))
    assert [status.done for status in run(experiments.make(SPEC), tmp_path)] == [0, 5, 5, 6, 10]
