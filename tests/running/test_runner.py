"""Records by hand, and runs that are killed again and again end like an unbroken one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ctta import Source, StateError
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import Record, RunFolder
from ctta.running.runner import Gallery, evaluate, execute
from run_folders import assert_same_runs, cells

TESTS = Path(__file__).parent
SPEC = {
    "data": {"domains": ["gaussian_noise", "fog", "contrast"], "images": 60, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent", {"method": "dss", "views": 2, "augmentation_threshold": 1.0, "lr": 0.01}],
}


class ByBrightness(nn.Module):
    """Answers class 1 for bright images and class 0 for dark ones, with confidence e/(1 + e)."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2)

    def forward(self, x):
        bright = (x.mean((1, 2, 3)) > 0.5).float()
        return torch.stack([1 - bright, bright], 1) + 0 * self.head(x[:, 0, 0, :1])


def test_records_by_hand():
    images = np.zeros((5, 32, 32, 3), np.uint8)
    images[2:] = 255
    stream = corrupted_stream(images, np.array([0, 1, 1, 1, 0]), [("clean", 0)], Data(batch=3))
    gallery = Gallery()
    first, second = evaluate(Source(ByBrightness()), stream, gallery=gallery)
    assert (first.n, first.wrong, first.step, first.position) == (3, 1, 0, 0)
    assert (second.n, second.wrong, second.step, second.position) == (2, 1, 1, 0)
    confidence = float(np.e / (1 + np.e))  # .731, bin 10 of 15
    assert first.info["confidence"] == pytest.approx(confidence)
    counts, sums, right = zip(*first.bins, strict=True)
    assert (counts[10], right[10], sum(counts)) == (3, 2, 3)
    assert sums[10] == pytest.approx(3 * confidence)
    assert first.selected is None
    samples = gallery.samples()
    assert samples.label.tolist() == [1, 0]
    assert samples.adapted.tolist() == samples.source.tolist() == [1, 1]
    assert (samples.images == 255).all()
    json.dumps(first.info)


def run_all(folder: Path, spec=SPEC) -> RunFolder:
    found = RunFolder(folder)
    for _ in execute(experiments.make(spec), found):
        pass
    return found


def records(folder: RunFolder) -> dict[str, list[Record]]:
    return {cell: list(folder.records(cell)) for cell in cells(folder)}


def test_a_run_leaves_records_samples_and_marks(tmp_path):
    folder = run_all(tmp_path / "run")
    assert cells(folder) == ["source-s0", "tent-s0", "dss-s0"]
    for cell, found in records(folder).items():
        assert [record.step for record in found] == list(range(9))
        assert [record.domain for record in found[::3]] == ["gaussian_noise", "fog", "contrast"]
        assert folder.done(cell).n == 180
        assert sorted(set(folder.samples(cell).position)) == [0, 1, 2]
    dss = records(folder)["dss-s0"]
    assert all(record.selected is not None and record.info["views"] == 2 for record in dss)
    assert all(round(record.info["selected"] * record.n) == record.selected for record in dss)
    assert not list(tmp_path.rglob("*.pt"))


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
    assert set(whole.samples("tent-s0").position) == set(range(30)), "of a long stream, the first stretches"
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(spec), broken, checkpoint_seconds=0.0)):
        if count == 100:
            break
    assert_same_runs(whole, run_all(broken.path, spec))
    with pytest.raises(StateError, match=r"protocol\.rounds was 12, is 2"):
        run_all(tmp_path / "whole", spec | {"protocol": {"kind": "recurring"}})


def test_domains_of_unlike_size_have_no_common_one(tmp_path):
    spec = SPEC | {"protocol": {"kind": "segments", "longest": 2, "shortest": 1}, "methods": ["source"]}
    folder = run_all(tmp_path, spec)
    sizes = {record.position: 0 for record in folder.records("source-s0")}
    for record in folder.records("source-s0"):
        sizes[record.position] += record.n
    assert sum(sizes.values()) == 180
    assert len(set(sizes.values())) > 1
    assert folder.run().stream["images"] is None


def test_finished_work_is_skipped_and_a_changed_experiment_refused(tmp_path):
    folder = run_all(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl")}
    run_all(tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl")}
    with pytest.raises(StateError, match=r"another experiment: data\.images was 60, is 40"):
        run_all(tmp_path, SPEC | {"data": SPEC["data"] | {"images": 40}})
    assert folder.done("dss-s0") is not None


@pytest.mark.parametrize("stop", [1, 4, 10, 17, 26])
@pytest.mark.parametrize("every", [0.0, 1e9])
def test_a_stopped_run_goes_on(tmp_path, stop, every):
    whole = run_all(tmp_path / "whole")
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(SPEC), broken, checkpoint_seconds=every)):
        if count == stop:
            break
    for path in broken.path.glob("*.jsonl"):  # the crash also cuts a line short
        with path.open("a") as file:
            file.write('{"method": "te')
        break
    assert_same_runs(whole, run_all(broken.path))


def test_a_checkpoint_ahead_of_its_records_leaves_no_hole(tmp_path):
    whole = run_all(tmp_path / "whole")
    broken = RunFolder(tmp_path / "broken")
    for count, _ in enumerate(execute(experiments.make(SPEC), broken, checkpoint_seconds=0.0)):
        if count == 14:
            break
    path = broken.records_path("tent-s0")  # the machine went down before these lines reached the disk
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert_same_runs(whole, run_all(broken.path))


def test_records_that_do_not_fit_are_noticed(tmp_path):
    broken = RunFolder(tmp_path)
    for count, _ in enumerate(execute(experiments.make(SPEC), broken, checkpoint_seconds=1e9)):
        if count == 12:
            break
    path = broken.records_path("tent-s0")
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(first.replace('"wrong": ', '"wrong": 1') + "".join(rest))
    with pytest.raises(StateError, match=r"Batch 0 of tent, computed again, differs"):
        run_all(tmp_path)


def test_a_run_that_is_killed_again_and_again_ends_like_an_unbroken_one(tmp_path):
    """SIGKILL at random moments, until one attempt gets through."""
    spec = SPEC | {"data": SPEC["data"] | {"images": 800}}
    whole = run_all(tmp_path / "whole", spec)
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(spec))
    out = tmp_path / "killed"
    code = "from ctta.cli import main; main()"
    arguments = ["run", str(file), "--out", str(out), "--quiet", "--checkpoint-seconds", "0.05"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    chance, killed = random.Random(1), 0
    for attempt in range(40):
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.DEVNULL)
        lines = _lines(out)
        deadline = time.monotonic() + 60
        while process.poll() is None and _lines(out) == lines and time.monotonic() < deadline:
            time.sleep(0.002)  # until it has computed something
        if attempt < 6:
            time.sleep(chance.random() * 0.15)
        else:
            process.wait(120)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        if process.wait() == 0:
            break
    assert killed >= 3, "the test must really kill runs"
    assert process.returncode == 0
    assert_same_runs(whole, RunFolder(out))


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
