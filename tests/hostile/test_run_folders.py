"""Run folders that were damaged in all ways: each is healed with a word, or refused with a sentence."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import damage
from ctta import CttaError
from ctta.base.tensor_file import read_tensors, write_tensors
from ctta.core.saving import KIND
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import Head, SweepFolder
from ctta.report import reports
from ctta.report.results import Results
from ctta.report.trackers import tracking
from ctta.report.trackers.tracking import Tracking
from ctta.training import learner, recipe
from run_folders import assert_same_runs, execute
from runs import run

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 20, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent"],
    "paper": "table1",
}
FILES = ("run.json", "tent-s0.done.json", "tent-s0.jsonl", "tent-s0.samples.npz")
STRIDE = 23  # of the documents that are wrong in one place, every so many


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A complete run folder."""
    return run(SPEC, tmp_path_factory.mktemp("whole") / "run").path


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run folder whose second method run has three of four records and a checkpoint."""
    path = run(SPEC, tmp_path_factory.mktemp("half") / "run", stop=6).path
    assert (path / "checkpoints" / "tent-s0.safetensors").is_file()
    assert (path / "tent-s0.samples.npz").is_file()
    return path


@pytest.fixture
def words(caplog):
    """What was said since it was last asked."""
    caplog.set_level(logging.WARNING, "ctta")

    def take():
        said = " ".join(record.getMessage() for record in caplog.records)
        caplog.clear()
        return said

    return take


def shown(path):
    """All that `ctta report` does; returns what it prints."""
    made = reports.load(path)
    made.write()
    json.dumps(made.to_json())
    with Console(width=200, record=True, quiet=True) as console:
        for one in made.to_rich(200):
            console.print(one)
    return made


def refused(work, name):
    """The sentence with which the work is refused, which names the file; empty if it is done."""
    said = ""
    try:
        work()
    except CttaError as error:
        said = str(error)
    assert not said or name in said or "is not a run folder" in said, said
    assert not said or said.endswith("."), said
    return said


@pytest.mark.parametrize("name", FILES)
def test_a_report_of_damaged_files(tmp_path, whole, attempt, words, name):
    text = (whole / name).read_bytes()
    for kind, harm in damage.FILES.items():
        path = damage.copy(whole, tmp_path / "run")
        harm(path / name)
        attempt("damaged run folders that are reported")
        if refused(lambda path=path: shown(path), name):
            assert name == "run.json", kind
            continue
        results = Results.load(path)
        (tent,) = (one for one in results.method_runs if one.cell.cell == "tent-s0")
        if name == "tent-s0.jsonl":
            assert tent.done is None, f"{kind}: half of the records must not count as complete"
        if name in ("tent-s0.jsonl", "tent-s0.done.json") and kind != "missing" and tent.done is None:
            if not (path / name).exists():
                continue
            assert any(str(path / "tent-s0.") in note for note in results.run.notes), kind
        if name == "tent-s0.samples.npz" and (path / name).exists() and (path / name).is_dir():
            assert name in words()
    assert (whole / name).read_bytes() == text


@pytest.mark.parametrize("name", FILES[:3])
def test_a_report_of_documents_that_are_wrong_in_one_place(tmp_path, whole, attempt, name):
    first, *rest = (whole / name).read_text().splitlines(keepends=True)
    lines = name.endswith(".jsonl")
    cases = list(damage.documents(json.loads(first if lines else (whole / name).read_text())))
    path = damage.copy(whole, tmp_path / "run")
    for _, document in cases[::STRIDE]:
        (path / name).write_text(json.dumps(document) + "\n" + "".join(rest if lines else ()))
        attempt("damaged run folders that are reported")
        refused(lambda: shown(path), name)


def test_a_report_of_a_damaged_sweep(tmp_path, whole, attempt):
    folder = SweepFolder(tmp_path / "base")
    head = Head("mine", {"method.lr": [1, 2]}, ("method.lr",), {"lr-1": {"method.lr": 1}, "lr-2": {"method.lr": 2}})
    folder.write(head)
    for slug in head.points:
        damage.copy(whole, folder.point(slug).path)
    document = json.loads((folder.path / "sweep.json").read_text())
    shown(folder.path)
    texts = [json.dumps(one) for _, one in damage.documents(document)][::3]
    for harm in [*damage.FILES.values(), *(partial(Path.write_text, data=text) for text in texts)]:
        path = damage.copy(folder.path, tmp_path / "sweep")
        harm(path / "sweep.json")
        attempt("damaged sweeps that are reported")
        refused(lambda path=path: shown(path), "sweep.json" if path.exists() else "")


@pytest.mark.parametrize("name", FILES)
def test_a_complete_run_whose_files_are_damaged_is_run_again(tmp_path, whole, attempt, words, name):
    for kind, harm in list(damage.FILES.items())[:: 2 if name.startswith("tent") else 1]:
        folder = RunFolder(damage.copy(whole, tmp_path / "run"))
        harm(folder.path / name)
        attempt("damaged run folders that are run again")
        if refused(lambda folder=folder: list(execute(experiments.make(SPEC), folder)), name):
            assert name == "run.json" or kind in ("a folder", "a link to itself"), kind
        elif name in ("tent-s0.jsonl", "tent-s0.done.json"):
            said = words()
            assert kind in ("missing", "a link to itself") or name == "tent-s0.done.json" or "tent-s0" in said, kind
            compared(whole, folder)


@pytest.mark.parametrize("name", ["tent-s0.jsonl", "tent-s0.samples.npz", "checkpoints/tent-s0.safetensors"])
def test_an_interrupted_run_whose_files_are_damaged_goes_on(tmp_path, whole, half, attempt, words, name):
    for kind, harm in list(damage.FILES.items())[::2]:
        folder = RunFolder(damage.copy(half, tmp_path / "run"))
        harm(folder.path / name)
        attempt("damaged run folders that are resumed")
        words()
        if refused(lambda folder=folder: list(execute(experiments.make(SPEC), folder)), Path(name).name):
            assert kind in ("a folder", "a link to itself"), kind
        else:
            zip_comment = name.endswith("npz") and kind == "flipped at 100%"
            harmless = kind == "missing" or zip_comment or (name.endswith("safetensors") and kind == "a link to itself")
            assert harmless or "tent-s0" in words(), kind
            compared(whole, folder)


def test_a_state_that_does_not_load_begins_again(tmp_path, whole, half, attempt, words):
    good = read_tensors(half / "checkpoints" / "tent-s0.safetensors", KIND)
    states = [{}, [], None, {"_extra_state": {"method": "tent"}}, good["state"] | {"_extra_state": {"method": "dss"}}]
    documents = [good | {"state": state} for state in states]
    documents += [good | {"notes": good["notes"] | {"step": step}} for step in (-1, "x", 10**9, None)]
    documents += [5, [], {}, good | {"made": None}, good | {"notes": None}]
    for document in documents:
        folder = RunFolder(damage.copy(half, tmp_path / "run"))
        write_tensors(folder.checkpoint_path("tent-s0"), KIND, document)
        attempt("damaged run folders that are resumed")
        list(execute(experiments.make(SPEC), folder))
        assert "begins again from its start" in words()
        compared(whole, folder)


def test_a_record_that_changed_while_nobody_looked(tmp_path, whole, half, attempt, words):
    """It lies before the checkpoint, so it is not computed again, and its line is a good one."""
    folder = RunFolder(damage.copy(half, tmp_path / "run"))
    path = folder.records_path("tent-s0")
    first, *rest = path.read_text().splitlines(keepends=True)
    document = json.loads(first)
    path.write_text(json.dumps(document | {"wrong": document["wrong"] - 1}) + "\n" + "".join(rest))
    attempt("damaged run folders that are resumed")
    list(execute(experiments.make(SPEC), folder))
    assert "was saved with other records" in words()
    compared(whole, folder)


def test_a_record_after_the_checkpoint_that_changed(tmp_path, whole, half, attempt, words):
    """It is computed again, and differs: nothing of the method run is taken for granted any more."""
    last = json.loads(RunFolder(whole).records_path("tent-s0").read_text().splitlines()[-1])
    for change in ({"wrong": last["wrong"] - 1}, {"domain": "fog"}, {"info": {}}, {"n": 9}):
        folder = RunFolder(damage.copy(half, tmp_path / "run"))
        with folder.records_path("tent-s0").open("a") as file:
            file.write(json.dumps(last | change) + "\n")
        attempt("damaged run folders that are resumed")
        list(execute(experiments.make(SPEC), folder))
        assert f"differs from its record in {folder.records_path('tent-s0')}" in words(), change
        compared(whole, folder)
        assert not list(folder.path.rglob("*.safetensors"))


def test_a_record_of_a_complete_run_that_changed(tmp_path, whole, attempt, words):
    """Its line is a good one, and their number is right: only the checksum tells."""
    folder = RunFolder(damage.copy(whole, tmp_path / "run"))
    path = folder.records_path("tent-s0")
    first, *rest = path.read_text().splitlines(keepends=True)
    document = json.loads(first)
    path.write_text(json.dumps(document | {"wrong": document["wrong"] - 1}) + "\n" + "".join(rest))
    attempt("damaged run folders that are reported")
    results = Results.load(folder)
    assert [one.done is None for one in results.method_runs] == [False, True]
    assert f"{path} has changed since it was complete" in results.run.notes[-1]
    attempt("damaged run folders that are run again")
    list(execute(experiments.make(SPEC), folder))
    assert "has changed since it was complete" in words()
    compared(whole, folder)


def test_records_without_their_head_are_not_adopted(tmp_path, whole, attempt):
    folder = RunFolder(damage.copy(whole, tmp_path / "run"))
    (folder.path / "run.json").unlink()
    attempt("damaged run folders that are run again")
    other = experiments.make(SPEC | {"data": SPEC["data"] | {"severity": 1}})
    with pytest.raises(CttaError, match=r"it has no run\.json"):
        list(execute(other, folder))


def test_a_mark_of_an_earlier_version_is_read(tmp_path, whole, attempt):
    folder = RunFolder(damage.copy(whole, tmp_path / "run"))
    mark = json.loads(folder.done_path("tent-s0").read_text())
    del mark["records_sha256"], mark["own_sha256"]
    folder.done_path("tent-s0").write_text(json.dumps(mark))
    attempt("folders of earlier versions")
    assert all(one.done for one in Results.load(folder).method_runs)
    path = folder.records_path("tent-s0")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    attempt("folders of earlier versions")
    assert [one.done is None for one in Results.load(folder).method_runs] == [False, True]


def test_a_damaged_folder_is_tracked(tmp_path, whole, attempt, monkeypatch):
    class Nothing(tracking.Tracker):
        def __init__(self, folder, where): ...

        def open(self, run, cell):
            raise OSError("full")

        def look(self):
            return ""

    monkeypatch.setattr(tracking, "TRACKERS", {"nothing": Nothing})
    for name in FILES[:3]:
        for harm in damage.FILES.values():
            folder = RunFolder(damage.copy(whole, tmp_path / "run"))
            harm(folder.path / name)
            attempt("damaged run folders that are tracked")

            def track(folder=folder):
                folder.run()
                Tracking(folder, "nothing", lambda _: None).finish()

            assert not refused(track, name) or name == "run.json"


def test_a_damaged_training_begins_again(tmp_path, attempt, words):
    settings = recipe.make(
        {
            "data": {"dataset": "embedded", "images": 40},
            "model": {"factory": "tiny:network"},
            "train": {"epochs": 2, "batch": 20, "augment": "none"},
        }
    )
    list(learner.train(settings, tmp_path / "whole.safetensors"))
    wanted = load_file(tmp_path / "whole.safetensors")
    base = tmp_path / "base"
    for progress in learner.train(settings, base / "a.safetensors", checkpoint_seconds=0.0):
        if progress.done == 3:
            break
    for kind, harm in damage.FILES.items():
        path = damage.copy(base, tmp_path / "copy")
        harm(path / "a.checkpoint")
        attempt("damaged trainings that are resumed")
        words()
        if refused(lambda path=path: list(learner.train(settings, path / "a.safetensors")), "a.checkpoint"):
            assert kind == "a folder"
            continue
        assert kind in ("missing", "a link to itself") or "begins again from its start" in words(), kind
        found = load_file(path / "a.safetensors")
        assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_values_that_are_not_finite_are_not_valid(tmp_path, whole, attempt):
    for value in (float("nan"), float("inf"), -float("inf")):
        folder = RunFolder(damage.copy(whole, tmp_path / "run"))
        path, mark = folder.records_path("tent-s0"), json.loads(folder.done_path("tent-s0").read_text())
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1]["info"]["confidence"] = value
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        folder.done_path("tent-s0").write_text(
            json.dumps(mark | {"records_sha256": "", "own_sha256": ""})
        )  # as earlier versions did
        attempt("runs with values that are not finite")
        row = shown(folder.path).errors.row_of("tent")
        assert row.problems == ("1 batches have values that are not finite (confidence); the first is batch 1.",)
        list(execute(experiments.make(SPEC), folder))
        assert not folder.done("tent-s0").valid


def compared(whole, folder):
    assert_same_runs(RunFolder(whole), folder)
    for cell in ("source-s0", "tent-s0"):
        assert folder.complete(cell).records_sha256
    assert not [path for path in folder.path.rglob("*") if path.name.endswith((".lock", ".tmp"))]
