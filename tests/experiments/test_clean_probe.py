"""The error on clean samples after each segment: what is counted, and that it leaves the stream's records alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ctta import TENT, InputError
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.stream import Domain
from ctta.experiments import experiment as experiments
from ctta.experiments.clean_probe import CleanSamples, Measure
from ctta.records.run_folder import RunFolder
from ctta.running.runner import evaluate
from runs import run

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog"], "images": 60, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": [
        "source",
        {"method": "tent", "lr": 0.05},
        {"method": "test_aug", "views": 2},
        {"method": "dss", "views": 2, "augmentation_threshold": 1.0, "lr": 0.01, "restore": 0.1},
    ],
}
CLEAN = SPEC | {"measure": {"clean_samples": 30}}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(CLEAN, tmp_path_factory.mktemp("measured"))


def records(folder: RunFolder) -> dict:
    return {cell.cell: list(folder.records(cell.cell)) for cell in folder.run().cells}


class ByBrightness(nn.Module):
    """Predicts class 1 for bright images and class 0 for dark ones, whatever its norm layer learns."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(1, 2)

    def forward(self, x):
        bright = (x.mean((1, 2, 3)) > 0.5).float()
        return torch.stack([1 - bright, bright], 1) + 0 * self.head(self.norm(x)[:, 0, 0, :1])


def test_counts_by_hand():
    images = np.zeros((6, 4, 4, 3), np.uint8)
    images[3:] = 255
    domain = Domain("clean", 0, np.array([0, 0, 1, 1, 1, 0]), images.__getitem__)  # rows 2 and 5 are predicted wrongly
    whole = CleanSamples(domain, (np.array([0, 2, 4]), np.array([1, 3, 5])))
    assert whole.ask(TENT(ByBrightness())) == (6, 2, 2)
    assert CleanSamples(domain, (np.array([0, 1]),)).ask(TENT(ByBrightness())) == (2, 0, 0)


def test_samples_are_spread_over_the_set_and_over_the_batches():
    data = Data(images=100, batch=4)
    clean = Measure(clean_samples=10).open(data, open_stream(data))
    assert [rows.tolist() for rows in clean.batches] == [[0, 33, 66, 99], [11, 44, 77], [22, 55, 88]]
    assert clean.domain.name == "clean"
    everything = Measure(clean_samples=1000).open(data, open_stream(data))
    assert sorted(row for rows in everything.batches for row in rows) == list(range(100))
    assert Measure().open(data, open_stream(data)) is None


def test_counts_are_at_the_end_of_each_segment(measured):
    for found in records(measured).values():
        assert [one.clean is not None for one in found] == [False, False, True] * 2
        assert all(one.clean[0] == 30 for one in found[2::3])
    source, tent = records(measured)["source-s0"], records(measured)["tent-s0"]
    assert all(one.clean[1] == one.clean[2] for one in source[2::3])
    assert [one.clean[2] for one in tent[2::3]] == [one.clean[2] for one in source[2::3]], "the source does not move"


def test_the_records_are_those_of_a_run_without_it(tmp_path, measured):
    plain = records(run(SPEC, tmp_path))
    for cell, found in records(measured).items():
        assert all(one.clean is None for one in plain[cell])
        assert all(replace(one, clean=None).same(other) for one, other in zip(found, plain[cell], strict=True)), cell


@pytest.mark.parametrize("stop", [8, 14, 20])
def test_an_interrupted_run_has_the_same_counts(tmp_path, measured, stop):
    run(CLEAN, tmp_path, stop=stop)
    again = records(run(CLEAN, tmp_path))
    for cell, found in records(measured).items():
        assert all(one.same(other) for one, other in zip(found, again[cell], strict=True)), cell


def test_old_records_have_no_counts(measured, tmp_path):
    lines = [json.loads(line) for line in measured.records_path("tent-s0").read_text().splitlines()]
    (tmp_path / "old.jsonl").write_text(
        "".join(json.dumps({key: value for key, value in line.items() if key != "clean"}) + "\n" for line in lines)
    )
    assert [one.clean for one in RunFolder(tmp_path).records("old")] == [None] * 6


def test_counts_are_the_adapters_own_predictions():
    """Computed again outside the runner: the same stream, then predict and source on the same rows."""
    data = Data(domains=("fog",), images=40, batch=20)
    stream = open_stream(data)
    clean = Measure(clean_samples=40).open(data, stream)
    *_, last = evaluate(TENT(experiments.make(SPEC).model.load(), lr=0.05), stream, clean=clean)
    adapter = TENT(experiments.make(SPEC).model.load(), lr=0.05)
    for batch in stream:
        adapter(batch.x)
    images, labels = clean.domain.load(np.arange(40))
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    halves = [torch.arange(0, 40, 2), torch.arange(1, 40, 2)]
    for ask, counted in ((adapter.predict, last.record.clean[1]), (adapter.source, last.record.clean[2])):
        wrong = sum(int((ask(x[half]).argmax(1).numpy() != labels[half.numpy()]).sum()) for half in halves)
        assert wrong == counted


def test_clean_samples_that_cannot_be_used(tmp_path):
    data = Data(dataset="modelnet40_c", path=str(tmp_path), domains=("uniform",))
    with pytest.raises(InputError, match=r"measure\.clean_samples: the clean samples cannot be read"):
        Measure(clean_samples=5).open(data, open_stream(Data(images=5)))
