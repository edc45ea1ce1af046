"""What a method run leaves behind; stopped or killed, it ends like an unbroken one."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from command_line import PATIENCE
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import Record, RunFolder
from forks import TESTS, Script
from run_folders import assert_same_runs, cells, execute

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog", "contrast"], "images": 60, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent", {"method": "dss", "views": 2, "augmentation_threshold": 1.0, "lr": 0.01}],
}


def run_all(folder: Path, spec=SPEC) -> RunFolder:
    found = RunFolder(folder)
    for _ in execute(experiments.make(spec), found):
        pass
    return found


def records(folder: RunFolder) -> dict[str, list[Record]]:
    return {cell: list(folder.records(cell)) for cell in cells(folder)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> RunFolder:
    """An unbroken run."""
    return run_all(tmp_path_factory.mktemp("whole") / "run")


def test_a_run_leaves_records_samples_and_marks(whole):
    assert cells(whole) == ["source-s0", "tent-s0", "dss-s0"]
    for cell, found in records(whole).items():
        assert [record.step for record in found] == list(range(9))
        assert [record.domain for record in found[::3]] == ["gaussian_noise", "fog", "contrast"]
        assert whole.done(cell).n == 180
        assert sorted(set(whole.samples(cell).position)) == [0, 1, 2]
    dss = records(whole)["dss-s0"]
    assert all(record.selected is not None and record.info["views"] == 2 for record in dss)
    assert all(round(record.info["selected"] * record.n) == record.selected for record in dss)
    assert not list(whole.path.rglob("*.safetensors"))


def test_source_data_reach_the_methods_that_need_them(tmp_path):
    spec = SPEC | {
        "methods": ["source", {"method": "eata", "margin": 1.0, "anchor": 1e4, "lr": 0.05}],
        "source": {"first": 9000, "images": 50},
    }
    one = run_all(tmp_path / "one", spec)
    assert one.run().cells[1].traits["source"] == "statistics"
    other = run_all(tmp_path / "other", spec | {"source": {"first": 9500, "images": 50}})
    different = [record.info["loss"] for record in one.records("eata-s0")]
    assert different != [record.info["loss"] for record in other.records("eata-s0")], "what is shown must matter"
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(spec), broken, checkpoint_seconds=0.0)):
        if count == 13:
            break
    assert_same_runs(one, run_all(broken.path, spec))


def test_a_protocol_is_run_recorded_and_resumed(tmp_path):
    spec = SPEC | {"protocol": {"kind": "recurring", "rounds": 12}, "methods": ["source", "tent"]}
    spec["data"] = {"domains": ["gaussian_noise", "fog", "contrast"], "images": 6, "batch": 4}
    whole = run_all(tmp_path / "whole", spec)
    found = records(whole)["tent-s0"]
    assert [(record.position, record.n) for record in found[:4]] == [(0, 4), (0, 2), (1, 4), (1, 2)]
    assert [record.domain for record in found[::2]] == ["gaussian_noise", "fog", "contrast"] * 12
    assert whole.run().stream["protocol"] == {"kind": "recurring", "rounds": 12, "order": None}
    assert set(whole.samples("tent-s0").position) == set(range(30)), "of a long stream, the first segments"
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(spec), broken, checkpoint_seconds=0.0)):
        if count == 100:
            break
    assert_same_runs(whole, run_all(broken.path, spec))


@pytest.mark.parametrize("stop", [1, 4, 10, 17, 26])
@pytest.mark.parametrize("every", [0.0, 1e9])
def test_a_stopped_run_goes_on(tmp_path, whole, stop, every):
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(SPEC), broken, checkpoint_seconds=every)):
        if count == stop:
            break
    for path in broken.path.glob("*.jsonl"):  # the crash also cuts a line short
        with path.open("a") as file:
            file.write('{"method": "te')
        break
    assert_same_runs(whole, run_all(broken.path))


def test_a_checkpoint_ahead_of_its_records_leaves_no_hole(tmp_path, whole):
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(SPEC), broken, checkpoint_seconds=0.0)):
        if count == 14:
            break
    path = broken.records_path("tent-s0")  # the machine went down before these lines reached the disk
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert_same_runs(whole, run_all(broken.path))


def test_records_that_do_not_fit_are_computed_again_with_a_word(tmp_path, whole, caplog):
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(SPEC), broken, checkpoint_seconds=1e9)):
        if count == 12:
            break
    path = broken.records_path("tent-s0")
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(re.sub(r'"n": \d+', '"n": 21', first) + "".join(rest))
    run_all(broken.path)
    assert f"Batch 0 of tent, computed again, differs from its record in {path}: code, threads" in caplog.text
    assert "The method run tent-s0 begins again from its start." in caplog.text
    assert_same_runs(whole, broken)


def test_a_run_that_is_killed_again_and_again_ends_like_an_unbroken_one(tmp_path, whole):
    file, out = tmp_path / "spec.yaml", tmp_path / "killed"
    file.write_text(json.dumps(SPEC))
    words = ["run", str(file), "--out", str(out), "--quiet", "--checkpoint-seconds", "0"]
    moments = (
        ("ctta.running.gallery:Gallery.keep", "before", 5),  # a batch is computed, its record not written
        ("ctta.running.checkpoint:save", "before", 3),  # the record is written, the state not saved
        ("pathlib:Path.replace", "before", 6),  # a file is written beside the one that it replaces
        ("pathlib:Path.replace", "after", 8),  # a file is replaced
        ("ctta.records.run_folder:RunFolder.write_done", "before", 1),  # all is there but the mark
        ("ctta.records.run_folder:RunFolder.write_done", "after", 1),  # the mark is there, the checkpoint not removed
        ("pathlib:Path.unlink", "never", 0),
    )
    codes = []
    for moment in moments:
        process = Script(TESTS / "killed_run.py", *moment, *words)
        process.communicate(PATIENCE)
        codes.append(process.returncode)
    assert codes == [-signal.SIGKILL] * (len(moments) - 1) + [0]
    assert_same_runs(whole, RunFolder(out))
