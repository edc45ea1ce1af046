"""`ctta check` finds all that is wrong; runs that cannot be trusted are marked; files are known by what they hold."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import tiny
from ctta import InputError, StateError
from ctta.cli.app import app
from ctta.data.corruptions import PAPER
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.experiments import experiment as experiments
from ctta.experiments.check import check
from ctta.experiments.source_check import Expected, SourceError, expected, measure
from ctta.models import identify, weights_hash
from ctta.records.run_folder import RunFolder
from ctta.report.reports import RunReport
from ctta.running.runner import execute
from needs import DATA
from trees import truncate, write_classes

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 40, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent", {"method": "dss", "views": 2}],
}


def said(spec, kind):
    return [finding.text for finding in check(spec) if finding.kind == kind]


def changed(section, **changes):
    return SPEC | {section: SPEC[section] | changes}


# What check says.


def test_nothing_wrong():
    found = list(check(SPEC))
    assert {finding.about for finding in found} == {"data", "model", "methods", "error"}
    assert not [finding for finding in found if finding.kind == "problem"]
    facts = "\n".join(said(SPEC, "fact"))
    for words in ("2 domains, 4 batches of up to 20, each sample 3 x 32 x 32", "to 10 classes", "source-s0", "dss-s0"):
        assert words in facts
    assert any("no better than guessing" in text for text in said(SPEC, "remark"))


def test_clean_samples_are_looked_at():
    assert "40 clean samples are asked after each stretch" in said(SPEC | {"measure": {"clean": 200}}, "fact")
    assert any(
        "CIFAR-10-C has none" in text
        for text in said({"data": {"dataset": "cifar10_c", "path": "x"}, "measure": {"clean": 9}}, "problem")
    )


def test_a_protocol_is_looked_at():
    assert any(
        "18 domains, 36 batches" in text and "protocol gradual" in text
        for text in said(SPEC | {"protocol": {"kind": "gradual"}}, "fact")
    )
    wrong = SPEC | {"protocol": {"kind": "gradual", "severities": []}, "seeds": "all"}
    problems = said(wrong, "problem")
    assert len(problems) == 2
    assert any("4 batches" in text for text in said(wrong, "fact")), "the data are looked at all the same"


def test_one_mistake_does_not_hide_another(tmp_path):
    spec = {
        "dta": {},
        "data": {"dataset": "cifar10_c", "path": str(tmp_path), "domains": ["fog"]},
        "model": {"name": "wrn28_10", "weights": str(tmp_path / "none.pt")},
        "methods": ["tentt", {"method": "dss", "views": -1}, "source"],
        "seeds": "all",
    }
    problems = "\n".join(said(spec, "problem"))
    for words in (
        "no section 'dta'",
        "no method 'tentt'",
        "'views' of DSSConfig",
        "seeds must be a list",
        "Missing: fog.npy, labels.npy",
        "zenodo.org",
        f"There is no file {tmp_path / 'none.pt'}",
    ):
        assert words in problems, problems


def test_bad_settings_do_not_hide_bad_weights(tmp_path):
    (tmp_path / "page.pt").write_bytes(b"<!DOCTYPE html>")
    spec = SPEC | {
        "data": {"severity": 9},
        "model": {"name": "cifar_resnet20", "weights": str(tmp_path / "page.pt")},
    }
    problems = "\n".join(said(spec, "problem"))
    assert "'severity' of Data" in problems
    assert "is a web page, not weights" in problems


def test_every_method_is_tried_on_the_model():
    no_norm = changed("model", factory=f"{__file__}:without_norm_layers")
    (problem,) = said(no_norm, "problem")
    assert problem.startswith("TENT: ")
    assert "adapts norm layers" in problem


def without_norm_layers():
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def failing():
    raise RuntimeError("no licence")


def wrong_channels():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def test_factories_that_fail():
    assert said(changed("model", factory=f"{__file__}:failing"), "problem") == [
        f"{__file__}:failing failed: RuntimeError('no licence')."
    ]
    assert len(said(changed("model", factory=f"{__file__}:wrong_channels"), "problem")) == 1


def test_labels_and_sizes_must_fit_the_model(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(30))
    spec = SPEC | {"data": {"dataset": "arrays", "path": str(tmp_path / "a.npz"), "domains": ["fog"], "batch": 10}}
    (problem,) = said(spec, "problem")
    assert "labels go up to 29, and the model has 10 classes, 0 to 9" in problem
    folder = run(spec, tmp_path / "run")
    assert "labels go up to 29" in folder.done("source-s0").problems[0]


def test_image_sizes_are_compared_with_the_model_s(tmp_path):
    write_classes(tmp_path / "set", [f"class{i}" for i in range(10)], each=1, size=(64, 64))
    torch.manual_seed(0)
    save_file(experiments.MODELS["cifar_resnet20"].build().state_dict(), tmp_path / "weights.safetensors")
    spec = {
        "data": {"dataset": "image_folder", "path": str(tmp_path / "set"), "domains": ["fog"], "batch": 5},
        "model": {"name": "cifar_resnet20", "weights": str(tmp_path / "weights.safetensors")},
        "methods": ["source"],
    }
    assert said(spec, "problem") == ["cifar_resnet20 was trained on images of 32 pixels; these have 64."]
    spec["data"]["size"] = 40
    assert not said(spec, "problem")
    assert "cifar_resnet20 was trained on images of 32 pixels; these have 40." in said(spec, "remark")
    spec["data"]["size"] = 32
    assert not [text for text in said(spec, "remark") if "pixels" in text]


def test_a_truncated_picture_is_found_in_what_is_read(tmp_path):
    write_classes(tmp_path, ("a", "b"), each=3, size=(64, 64))
    truncate(tmp_path / "b" / "b_1.JPEG")
    spec = SPEC | {"data": {"dataset": "image_folder", "path": str(tmp_path), "domains": ["fog"], "batch": 2}}
    (problem,) = said(spec, "problem")
    assert str(tmp_path / "b" / "b_1.JPEG") in problem
    assert "truncated" in problem


def test_a_run_keeps_what_came_before_a_bad_picture(tmp_path):
    write_classes(tmp_path / "set", ("a", "b"), each=50, size=(32, 32))
    data = {"dataset": "image_folder", "path": str(tmp_path / "set"), "domains": ["clean"], "batch": 10, "size": 32}
    bad = tmp_path / "set" / open_stream(Data(**data | {"domains": "clean"})).domains[0].images.names[45]
    spec = SPEC | {"data": data, "methods": ["source"]}
    folder = RunFolder(tmp_path / "run")
    running = execute(experiments.make(spec), folder)
    next(running)
    running.close()
    bad.write_bytes(b"x" * bad.stat().st_size)  # of the same length, so it is still the same experiment
    with pytest.raises(InputError, match=bad.name):
        run(spec, folder.path)
    assert [record.step for record in folder.records("source-s0")] == [0, 1, 2, 3]


def test_the_verb_says_what_to_type_next(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC))
    found = CliRunner().invoke(app, ["check", str(path), "--set", "data.images=20"])
    assert found.exit_code == 0
    assert f"ctta run {path} --set data.images=20" in found.output
    found = CliRunner().invoke(app, ["check", str(path), "--set", "data.severity=9"])
    assert found.exit_code == 2
    assert f"1 problem. Mend, then:  ctta check {path}" in found.output


# What is expected of a source model.


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
    assert right or f"source error {measured} % on {samples} clean images, expected 8.0 ± " in text


def test_the_embedded_model_is_as_good_as_it_should_be():
    experiment = experiments.make({"data": {"images": 300}})
    stream = open_stream(experiment.data)
    found = measure(experiment.data, stream, experiment.model.load())
    assert (found.samples, found.on) == (300, "clean")
    wanted = expected(experiment.model, experiment.data, stream, 32)
    assert wanted.error == 6.25
    assert not wanted.off(found, 3.0)


class Half(nn.Module):
    """Answers 0 whatever it sees."""

    def forward(self, x):
        return torch.eye(10)[torch.zeros(len(x), dtype=torch.long)]


def test_the_source_error_by_hand(tmp_path):
    images = np.ones((50, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "a.npz", images=images[:8], labels=np.array([0, 0, 0, 1, 2, 0, 1, 0]))
    data = Data(dataset="arrays", path=str(tmp_path / "a.npz"), domains=("fog",), batch=3)
    assert measure(data, open_stream(data), Half()) == SourceError(37.5, 8, "clean")
    for name in ("fog", "snow"):
        np.save(tmp_path / f"{name}.npy", images)
    np.save(tmp_path / "labels.npy", np.array([0, 0, 1, 1, 1, 1, 0, 0, 0, 1]))
    stored = Data(dataset="cifar10_c", path=str(tmp_path), domains=("fog", "snow"), batch=4)
    assert measure(stored, open_stream(stored), Half()) == SourceError(50.0, 20, "domains")


def test_what_is_known_of_public_weights(tmp_path, monkeypatch):
    images = np.ones((5, 32, 32, 3), np.uint8)
    for name in PAPER:
        np.save(tmp_path / f"{name}.npy", images)
    np.save(tmp_path / "labels.npy", np.zeros(5, np.int64))
    (tmp_path / "weights.pt").write_bytes(b"anything")

    def wanted(dataset, model, **changes):
        data = Data(**{"dataset": dataset, "path": str(tmp_path), "domains": "paper"} | changes)
        stream = open_stream(data)
        return expected(experiments.Model(name=model, weights=str(tmp_path / "weights.pt")), data, stream, 32)

    assert wanted("cifar10_c", "wrn28_10") is None  # not the public file
    public = experiments.MODELS["wrn28_10"].checkpoints[0].sha256
    monkeypatch.setattr(sys.modules["ctta.models.load"], "sha256", lambda path: public)
    assert wanted("cifar10_c", "wrn28_10").error == 43.5
    assert wanted("cifar10_c", "wrn28_10", domains=tuple(reversed(PAPER))).error == 43.5
    assert wanted("cifar10_c", "wrn28_10", domains=PAPER[:14]) is None
    assert wanted("cifar10_c", "wrn28_10", severity=4) is None
    assert wanted("cifar100_c", "wrn28_10") is None
    assert wanted("cifar100_c", "resnext29").error == 46.4
    assert experiments.MODELS["resnet50"].checkpoints[0].corrupted == {
        "ImageNet-C (none)": 82.0,
        "ImageNet-C (resize256)": 82.4,
    }


# Runs.


def run(spec, path):
    folder = RunFolder(path)
    for _ in execute(experiments.make(spec), folder):
        pass
    return folder


def test_a_run_whose_source_error_is_off_is_marked_everywhere(tmp_path):
    spec = changed("model", expected_error=5.0)
    folder = run(spec, tmp_path / "run")
    stored = folder.run().stream["source_check"]
    assert (stored["samples"], stored["on"]) == (40, "clean")
    for cell in ("source-s0", "tent-s0", "dss-s0"):
        done = folder.done(cell)
        assert not done.valid
        assert "expected 5.0 ±" in done.problems[0]
    made = RunReport.load(folder)
    made.write()
    for name in ("table.md", "table.csv", "table.tex"):
        assert "invalid" in (folder.path / name).read_text()
    assert (folder.path / "table.md").read_text().count("expected 5.0") == 1  # said once, for all rows
    assert not any(made.errors.best)
    # The expectation was wrong: nothing is computed again, the mark goes.
    before = folder.records_path("dss-s0").stat().st_mtime_ns
    folder = run(changed("model", expected_error=stored["error"]), tmp_path / "run")
    assert folder.done("dss-s0").valid
    assert folder.done("dss-s0").problems == ()
    assert folder.records_path("dss-s0").stat().st_mtime_ns == before


def test_a_run_without_an_expectation_is_valid(tmp_path):
    assert run(SPEC, tmp_path).done("source-s0").valid


def thousand_classes():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 7, 7), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000)
    )


def test_imagenet_trees_run_from_end_to_end(tmp_path):
    write_classes(tmp_path / "c" / "weather" / "fog" / "5", each=2)
    write_classes(tmp_path / "r", each=2, size=(90, 120))
    methods, model = ["source", "tent"], {"name": None, "factory": f"{__file__}:thousand_classes"}
    for name, title, domains in (("c", "ImageNet-C (resize256)", ["fog"]), ("r", "ImageNet-R (resize256)", "paper")):
        data = {"dataset": f"imagenet_{name}", "path": str(tmp_path / name), "domains": domains, "batch": 4}
        spec = {"data": data, "model": model, "methods": methods}
        assert not said(spec, "problem")
        folder = run(spec, tmp_path / f"run-{name}")
        assert RunReport.load(folder).errors.dataset == title
        assert [record.n for record in folder.records("tent-s0")] == [4, 2]
        assert folder.run().stream["source_check"]["on"] == "domains"
    assert folder.run().notes == ("Only 3 of the 200 classes of ImageNet-R are in the folder; scored on those.",)
    small = spec | {"model": SPEC["model"]}
    assert "scored on logits up to 999, and the model has 10 classes" in said(small, "problem")[0]
    with pytest.raises(InputError, match="scored on logits up to 999"):
        run(small, tmp_path / "small")


def weights_spec(path, weights):
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(20) % 10)
    return {
        "data": {"dataset": "arrays", "path": str(path), "domains": ["fog"], "batch": 10},
        "model": {"name": "cifar_resnet20", "weights": str(weights)},
        "methods": ["source"],
    }


def test_other_content_is_another_experiment_and_another_place_is_not(tmp_path):
    torch.manual_seed(0)
    model = experiments.MODELS["cifar_resnet20"].build()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    spec = weights_spec(tmp_path / "a.npz", tmp_path / "w.safetensors")
    run(spec, tmp_path / "run")
    (tmp_path / "there").mkdir()
    (tmp_path / "w.safetensors").rename(tmp_path / "there" / "other.safetensors")
    (tmp_path / "a.npz").rename(tmp_path / "there" / "b.npz")
    moved = weights_spec(tmp_path / "there" / "b.npz", tmp_path / "there" / "other.safetensors")
    run(moved, tmp_path / "run")
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    save_file(model.state_dict(), tmp_path / "there" / "other.safetensors")
    with pytest.raises(StateError, match=r"files\.weights was '\w{16}', is '\w{16}'"):
        run(moved, tmp_path / "run")


def test_the_hash_of_a_model():
    one, two = tiny.network(), tiny.network()
    assert weights_hash(one) == weights_hash(two)
    two[1].running_mean[0] += 1e-6
    assert weights_hash(one) != weights_hash(two)
    assert weights_hash(one.to(torch.bfloat16)) != weights_hash(tiny.network())


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
    assert not said(spec, "problem")
    spec["model"] |= {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
    (problem,) = said(spec, "problem")
    assert "expected 8.2" in problem
    assert "akamaster's resnet20" in problem
    assert not run(spec, tmp_path).done("source-s0").valid
