"""A run on a device that is not the CPU: the same records, and every place that moves data is needed.

No GPU is needed: the device is pretended (see `ctta.testing.device`).
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from ctta import METHODS, Guard, Source
from ctta.base.errors import CttaError
from ctta.core import device as devices
from ctta.core.device import Kind
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data
from ctta.experiments import experiment as experiments
from ctta.experiments.build import make_adapter, source_batches
from ctta.experiments.check import check
from ctta.records.run_folder import RunFolder
from ctta.running import runner
from ctta.running.adapt_folder import plan_adaptation
from ctta.running.engines import Inline
from ctta.running.opening import open_experiment
from ctta.running.run import run
from ctta.testing.device import MixedDevicesError, Pretended, pretended, waits
from ctta.training import recipe
from ctta.training.learner import Learner
from tiny import network

IDENTITY = "63e6a211d5f4d1a6"
SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 20, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent", "eata", {"method": "tent", "name": "guarded", "guard": True}],
    "source": {"dataset": "embedded", "first": 9000, "images": 20},
    "measure": {"clean_samples": 10},
}
TRAINING = {
    "data": {"dataset": "embedded", "images": 60},
    "model": {"factory": "tiny:network", "classes": 10},
    "train": {"epochs": 1, "batch": 20, "holdout": 0.2},
}


def execute(path: Path, engine=None, **sections) -> RunFolder:
    *_, status = run(experiments.make(SPEC | sections), path, engine)
    assert not status.failures, status.failures[0].error
    return RunFolder(path)


def test_the_records_are_those_of_the_processor(tmp_path):
    expected = execute(tmp_path / "here")
    with pretended() as device:
        found = execute(tmp_path / "there")
    assert found.run().environment["device"] == device.type
    assert found.run().stream["source_check"] == expected.run().stream["source_check"]
    for cell in expected.run().cells:
        pairs = zip(found.records(cell.cell), expected.records(cell.cell), strict=True)
        assert all(record.same(other) for record, other in pairs), cell.cell
        left, right = found.samples(cell.cell), expected.samples(cell.cell)
        assert np.array_equal(left.source, right.source)
        assert np.array_equal(left.images, right.images)


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    whole, spec = tmp_path / "whole", SPEC | {"methods": ["eata"]}
    with pretended():
        expected = execute(whole, methods=["eata"])
        stopped = run(experiments.make(spec), tmp_path / "stopped", Inline(checkpoint_seconds=0))
        for status in stopped:
            if status.done == 3:
                break
        stopped.close()
        assert list((tmp_path / "stopped").rglob("*.safetensors")), "there is a checkpoint"
        found = execute(tmp_path / "stopped", methods=["eata"])
    assert len(found.records("eata-s0")) == 4
    for record, other in zip(found.records("eata-s0"), expected.records("eata-s0"), strict=True):
        assert record.same(other)


def test_another_kind_of_device_is_another_run(tmp_path):
    execute(tmp_path, methods=["source"])
    with pretended(), pytest.raises(CttaError, match=r"execution\.device was 'cpu', is 'lazy'"):
        execute(tmp_path, methods=["source"])


def test_which_device_of_its_kind_it_is_decides_nothing(monkeypatch):
    monkeypatch.setitem(devices.KINDS, "cuda", Kind(lambda: 2))
    made = [experiments.make(SPEC | {"execution": {"device": name}}) for name in ("cuda", "cuda:0", "cuda:1", "cpu")]
    any_of_them, first, second, processor = (one.identity() for one in made)
    assert any_of_them == first == second != processor


def test_on_a_processor_the_identity_is_that_of_earlier_versions():
    """The hash was computed before there was a device."""
    plain = {"data": {"images": 20}, "model": {"name": "embedded"}, "methods": ["source"]}
    assert experiments.make(plain | {"execution": {"device": "cpu"}}).identity() == IDENTITY


def test_check_runs_everything_there():
    with pretended():
        found = list(check(SPEC))
    assert [finding.text for finding in found if finding.kind == "problem"] == []
    assert "on lazy, precision full" in [finding.text for finding in found]


MOVES = {
    "the stream": "ctta.data.stream",
    "clean samples": "ctta.experiments.clean_probe",
    "the first batch": "ctta.running.opening",
    "the source check": "ctta.experiments.source_check",
}


@pytest.mark.parametrize("module", MOVES.values(), ids=MOVES)
def test_each_move_is_needed(tmp_path, monkeypatch, module):
    """A place that forgets to move its data is an error here, as it would be on a GPU."""
    monkeypatch.setattr(f"{module}.upload", lambda x, device: x)
    words = r"same device|the model is torch.float32 on lazy:0"
    with pretended(), pytest.raises((CttaError, AssertionError, RuntimeError), match=words):
        execute(tmp_path, methods=["source"])


def test_model_and_source_data_are_there():
    with pretended() as device:
        opened = open_experiment(experiments.make(SPEC))
        assert {parameter.device for parameter in opened.model.parameters()} == {device}
        (cell, *_) = opened.experiment.cells(opened.x.shape)
        adapter = make_adapter(cell, opened.model, opened.experiment.execution)
        for x, y in source_batches(opened.experiment.source, adapter):
            assert x.device == y.device == device


@pytest.mark.parametrize("make", [Source], ids=["source"])
def test_one_read_per_batch_besides_those_of_the_step(make):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(6), [("fog", 5)], Data(batch=3))
    with pretended() as device:
        adapter = make(network().to(device))
        there = stream.on(device)
        for batch, x in there:
            waits.clear()
            adapter.step(x)
            inside = len(waits)
            waits.clear()
            runner._evaluate(adapter, batch, x)
            assert waits[inside:] == ["read"]


@pytest.mark.parametrize("method", list(METHODS))
def test_a_guarded_method_stays_there(method):
    """All that a guard compares is on the device, whatever the method learns."""
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with pretended() as device:
        kind = METHODS[method]
        few = {name: 1 for name in ("views", "masks", "head_steps") if name in kind.config_type.fields()}
        guard = Guard(kind(network().to(device), **few))
        guard.prepare([(x.to(device), torch.arange(4).to(device))])
        for _ in range(2):
            assert guard(x.to(device)).device == device


def test_a_device_without_double_precision_can_be_read(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(6), [("fog", 5)], Data(batch=3))
    expected = [evaluated.record for evaluated in runner.evaluate(Source(network()), stream)]
    with pretended() as device:
        monkeypatch.setitem(devices.KINDS, "lazy", Kind(wide=False))
        adapter = Source(network().to(device))
        monkeypatch.setattr(Pretended, "__new__", _refuse_doubles)
        found = [evaluated.record for evaluated in runner.evaluate(adapter, stream)]
    assert [record.wrong for record in found] == [record.wrong for record in expected]
    assert [record.info for record in found] == [record.info for record in expected]


def _refuse_doubles(cls, values, plain=Pretended.__new__):
    assert values.dtype != torch.float64, "the device has none"
    return plain(cls, values)


def test_times_are_taken_of_a_device_that_has_nothing_left_to_do(monkeypatch):
    order = []
    images = np.zeros((3, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(3), [("clean", 0)], Data(batch=3))
    monkeypatch.setattr(runner.time, "perf_counter", lambda: order.append("clock") or 0.0)
    with pretended() as device:
        monkeypatch.setitem(devices.KINDS, "lazy", Kind(synchronize=lambda which: order.append(str(which))))
        adapter = Source(network().to(device))
        step = adapter.step
        monkeypatch.setattr(adapter, "step", lambda x: order.append("step") or step(x))
        list(runner.evaluate(adapter, stream))
    assert order == ["lazy:0", "clock", "step", "lazy:0", "clock"]


def test_batches_are_pinned_ahead_in_threads_and_copied_without_waiting(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(12), [("clean", 0)], Data(batch=2))
    pinned = []
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self: pinned.append(threading.current_thread().name) or self.clone()
    )
    with pretended() as device:
        monkeypatch.setitem(devices.KINDS, "lazy", Kind(pins=True))
        there = stream.on(device, start=1)
        batch, x = next(there)
        assert batch.step == 1
        assert len(pinned) >= 2, "the next ones are at work"
        rest = list(there)
        assert waits == []
        for one, moved in [(batch, x), *rest]:
            assert moved.device == device
            assert torch.equal(moved.cpu(), one.x)
    assert len(pinned) == 5
    assert all(name.startswith("prefetch") for name in pinned)


def test_the_peak_is_that_of_the_device(tmp_path, monkeypatch):
    used = {"peak": 700 * 2**20}

    def restart(device):
        used["peak"] = 100 * 2**20

    def step(adapter, batch, x, plain=runner._evaluate):
        used["peak"] = 350 * 2**20
        return plain(adapter, batch, x)

    monkeypatch.setattr(runner, "_evaluate", step)
    with pretended():
        kind = Kind(lambda: 1, peak=lambda device: used["peak"], restart_peak=restart)
        monkeypatch.setitem(devices.KINDS, "lazy", kind)
        folder = execute(tmp_path, methods=["source"])
    assert folder.done("source-s0").peak_memory == 250.0


def test_adapt_goes_there(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), np.uint8))
    answers = []
    for device in ("cpu", "auto"):
        with pretended():
            plan = plan_adaptation("embedded", tmp_path / "x.npy", method="tent", batch=4, device=device)
            assert plan.device.type == ("lazy" if device == "auto" else "cpu")
            assert plan.about["execution"] == {"device": plan.device.type}
            for _ in plan.run(tmp_path / f"{device}.csv", tmp_path / f"{device}-report"):
                pass
        head = json.loads((tmp_path / f"{device}-report" / "run.json").read_text())
        assert head["environment"]["device"] == plan.device.type
        answers.append((tmp_path / f"{device}.csv").read_text())
    assert answers[0] == answers[1]


def learned(device: str) -> dict[str, torch.Tensor]:
    learner = Learner(recipe.make({**TRAINING, "train": {**TRAINING["train"], "device": device}}))
    assert learner.device.type == device
    assert len(list(learner.run())) == 2
    assert learner.metadata()["test_error"]
    return learner.weights()


def test_training_goes_there():
    expected = learned("cpu")
    with pretended():
        found = learned("lazy")
    for name, value in expected.items():
        assert type(found[name]) is torch.Tensor
        torch.testing.assert_close(found[name], value, msg=name)


def test_training_data_that_are_left_behind_are_noticed(monkeypatch):
    monkeypatch.setattr("ctta.training.learner.upload", lambda x, device: x)
    with pretended(), pytest.raises((CttaError, MixedDevicesError), match="same device"):
        learned("lazy")
