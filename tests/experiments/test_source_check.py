"""The source model's error against its expected error, and the runs that are marked because of it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

from ctta.data.corruptions import PAPER
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.experiments import experiment as experiments
from ctta.experiments.check import check
from ctta.experiments.source_check import Expected, SourceError, expected, measure
from ctta.experiments.source_model import Model
from ctta.models import MODELS, identify
from ctta.report.reports import RunReport
from needs import DATA
from runs import run

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 40, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent", {"method": "dss", "views": 2}],
}


def with_expected_error(percent):
    return SPEC | {"model": SPEC["model"] | {"expected_error": percent}}


def problems(spec):
    return [finding.text for finding in check(spec) if finding.kind == "problem"]


@pytest.mark.parametrize(
    ("measured", "samples", "right"),
    [
        (13.4, 500, True),  # 8 + 3 + 2 sqrt(8 * 92 / 500) = 13.43
        (13.5, 500, False),
        (2.6, 500, True),
        (2.5, 500, False),
        (16.0, 100, True),  # 8 + 3 + 2 sqrt(8 * 92 / 100) = 16.43
        (16.5, 100, False),
    ],
)
def test_what_is_off_by_hand(measured, samples, right):
    wanted = Expected(8.0, "why")
    text = wanted.off(SourceError(measured, samples, "clean"), 3.0)
    assert (text == "") == right
    assert right or f"source error {measured} % on {samples} clean samples, expected 8.0 ± " in text


def test_the_embedded_model_is_as_good_as_it_should_be():
    experiment = experiments.make({"data": {"images": 300}})
    stream = open_stream(experiment.data)
    found = measure(experiment.data, stream, experiment.model.load())
    assert (found.samples, found.on) == (300, "clean")
    wanted = expected(experiment.model, experiment.data, stream, 32)
    assert wanted.error == 6.25
    assert not wanted.off(found, 3.0)


class Constant(nn.Module):
    """Predicts class 0 for every input."""

    def forward(self, x):
        return torch.eye(10)[torch.zeros(len(x), dtype=torch.long)]


def test_the_source_error_by_hand(tmp_path):
    images = np.ones((50, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "a.npz", images=images[:8], labels=np.array([0, 0, 0, 1, 2, 0, 1, 0]))
    data = Data(dataset="arrays", path=str(tmp_path / "a.npz"), domains=("fog",), batch=3)
    assert measure(data, open_stream(data), Constant()) == SourceError(37.5, 8, "clean")
    for name in ("fog", "snow"):
        np.save(tmp_path / f"{name}.npy", images)
    np.save(tmp_path / "labels.npy", np.array([0, 0, 1, 1, 1, 1, 0, 0, 0, 1]))
    stored = Data(dataset="cifar10_c", path=str(tmp_path), domains=("fog", "snow"), batch=4)
    assert measure(stored, open_stream(stored), Constant()) == SourceError(50.0, 20, "domains")


def test_what_is_known_of_public_weights(tmp_path, monkeypatch):
    images = np.ones((5, 32, 32, 3), np.uint8)
    for name in PAPER:
        np.save(tmp_path / f"{name}.npy", images)
    np.save(tmp_path / "labels.npy", np.zeros(5, np.int64))
    (tmp_path / "weights.pt").write_bytes(b"anything")

    def wanted(dataset, model, **changes):
        data = Data(**{"dataset": dataset, "path": str(tmp_path), "domains": "paper"} | changes)
        stream = open_stream(data)
        return expected(Model(name=model, weights=str(tmp_path / "weights.pt")), data, stream, 32)

    assert wanted("cifar10_c", "wrn28_10") is None  # not the public file
    public = MODELS["wrn28_10"].checkpoints[0].sha256
    monkeypatch.setattr(sys.modules["ctta.models.load"], "sha256", lambda path: public)
    assert wanted("cifar10_c", "wrn28_10").error == 43.5
    assert wanted("cifar10_c", "wrn28_10", domains=tuple(reversed(PAPER))).error == 43.5
    assert wanted("cifar10_c", "wrn28_10", domains=PAPER[:14]) is None
    assert wanted("cifar10_c", "wrn28_10", severity=4) is None
    assert wanted("cifar100_c", "wrn28_10") is None
    assert wanted("cifar100_c", "resnext29").error == 46.4
    assert MODELS["resnet50"].checkpoints[0].corrupted == {
        "ImageNet-C (none)": 82.0,
        "ImageNet-C (resize256)": 82.4,
    }


def test_a_run_whose_source_error_is_off_is_marked_everywhere(tmp_path):
    spec = with_expected_error(5.0)
    folder = run(spec, tmp_path / "run")
    stored = folder.run().stream["source_check"]
    assert (stored["samples"], stored["on"]) == (40, "clean")
    for cell in ("source-s0", "tent-s0", "dss-s0"):
        done = folder.done(cell)
        assert not done.valid
        assert "expected 5.0 ±" in done.problems[0]
    report = RunReport.load(folder)
    report.write()
    for name in ("table.md", "table.csv"):
        assert "invalid" in (folder.path / name).read_text()
    assert (folder.path / "table.md").read_text().count("expected 5.0") == 1  # said once, for all rows
    assert not any(report.errors.best)
    # The expectation was wrong: nothing is computed again, the mark goes.
    before = folder.records_path("dss-s0").stat().st_mtime_ns
    folder = run(with_expected_error(stored["error"]), tmp_path / "run")
    assert folder.done("dss-s0").valid
    assert folder.done("dss-s0").problems == ()
    assert folder.records_path("dss-s0").stat().st_mtime_ns == before


def test_a_run_without_an_expectation_is_valid(tmp_path):
    assert run(SPEC, tmp_path).done("source-s0").valid


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the real data: set CTTA_DATA to their folder")
def test_real_weights_on_real_images(tmp_path):
    weights = DATA / "weights" / "cifar10_resnet20_akamaster.th"
    assert identify("cifar_resnet20", weights).name == "akamaster's resnet20"
    spec = {
        "data": {
            "dataset": "arrays",
            "path": str(DATA / "cifar10_test_first5000.npz"),
            "domains": ["fog"],
            "images": 200,
            "batch": 100,
        },
        "model": {"name": "cifar_resnet20", "weights": str(weights)},
        "methods": ["source"],
    }
    assert not problems(spec)
    spec["model"] |= {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
    (problem,) = problems(spec)
    assert "expected 8.2" in problem
    assert "akamaster's resnet20" in problem
    assert not run(spec, tmp_path).done("source-s0").valid
