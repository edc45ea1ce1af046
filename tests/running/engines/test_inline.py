"""In this process: the run that is open already is not opened again."""

from __future__ import annotations

from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.experiments.experiment import Model
from ctta.running.run import run

SPEC = {
    "data": {"domains": ["fog"], "images": 10, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent"],
}


def test_a_model_is_loaded_once_per_run(tmp_path, monkeypatch):
    loads, load = [], Model.load
    monkeypatch.setattr(Model, "load", lambda model: loads.append(model) or load(model))
    list(run(experiments.make(SPEC), tmp_path / "one"))
    assert len(loads) == 1
    loads.clear()
    list(run(sweep.make(SPEC | {"grid": {"data.severity": [1, 5]}}), tmp_path / "two"))
    assert len(loads) == 4, "all runs are opened first, to see whether they can be run, and only one stays open"


def test_an_error_that_is_not_ours_is_reported_with_its_place(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("the model is anybody's code")

    monkeypatch.setattr("ctta.running.opening.OpenExperiment.warm_up", broken)
    *_, end = run(experiments.make(SPEC), tmp_path)
    assert [event.job.cell.cell for event in end.failures] == ["source-s0", "tent-s0"]
    assert "ZeroDivisionError: the model is anybody's code" in end.failures[0].error
    assert "test_inline.py, line " in end.failures[0].error
