"""`ctta check` finds everything that is wrong, in settings, data, model and methods."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from ctta import CttaError, InputError
from ctta.cli.app import app
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.experiments.check import check
from ctta.models import MODELS
from ctta.records.run_folder import RunFolder
from ctta.report.reports import RunReport
from runs import run
from trees import picture_names, truncate, write_classes

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 40, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent", {"method": "dss", "views": 2}],
}


SWEPT = SPEC | {
    "data": {"domains": ["fog"], "images": 20, "batch": 10},
    "methods": ["source", {"method": "dss", "views": 2}],
}


def said(spec, kind):
    return [finding.text for finding in check(spec) if finding.kind == kind]


def changed(section, **changes):
    return SPEC | {section: SPEC[section] | changes}


def test_nothing_wrong():
    found = list(check(SPEC))
    assert {finding.about for finding in found} == {"data", "model", "execution", "methods", "error"}
    assert not [finding for finding in found if finding.kind == "problem"]
    facts = "\n".join(said(SPEC, "fact"))
    for words in ("2 domains, 4 batches of up to 20, each sample 3 x 32 x 32", "to 10 classes", "source-s0", "dss-s0"):
        assert words in facts
    assert any("no better than guessing" in text for text in said(SPEC, "remark"))


def test_clean_samples_are_checked():
    facts = said(SPEC | {"measure": {"clean_samples": 200}}, "fact")
    assert "40 clean samples are evaluated after each segment" in facts
    assert any(
        "CIFAR-10-C has none" in text
        for text in said({"data": {"dataset": "cifar10_c", "path": "x"}, "measure": {"clean_samples": 9}}, "problem")
    )


def test_a_protocol_is_checked():
    assert any(
        "18 domains, 36 batches" in text and "protocol gradual" in text
        for text in said(SPEC | {"protocol": {"kind": "gradual"}}, "fact")
    )
    wrong = SPEC | {"protocol": {"kind": "gradual", "severities": []}, "seeds": "all"}
    problems = said(wrong, "problem")
    assert len(problems) == 2
    assert any("4 batches" in text for text in said(wrong, "fact")), "the data are checked all the same"


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


def test_views_in_chunks_are_compared_with_one_at_a_time():
    comparing = changed("model", factory=f"{__file__}:comparing_samples")
    (problem,) = said(comparing, "problem")
    assert "other predictions than one at a time" in problem
    assert said(comparing | {"execution": {"views_per_pass": 1, "parallel_passes": 1}}, "problem") == []
    assert said(comparing | {"methods": ["source", "tent"]}, "problem") == [], "no method here averages views"


class Comparing(nn.Module):
    """Divides the features of each sample by the largest of the batch."""

    def forward(self, x):
        return x / x.abs().amax(0)


def comparing_samples():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(features, Comparing(), nn.Linear(4, 10))


def without_norm_layers():
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def failing():
    raise RuntimeError("no licence")


def wrong_channels():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def test_factories_that_fail():
    (problem,) = said(changed("model", factory=f"{__file__}:failing"), "problem")
    assert "failing' cannot be used (RuntimeError: no licence)." in problem
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
    save_file(MODELS["cifar_resnet20"].build().state_dict(), tmp_path / "weights.safetensors")
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
    bad = tmp_path / "set" / picture_names(open_stream(Data(**data | {"domains": "clean"})))[45]
    spec = SPEC | {"data": data, "methods": ["source"]}
    run(spec, tmp_path / "run", stop=0)
    bad.write_bytes(b"x" * bad.stat().st_size)  # of the same length, so it is still the same experiment
    with pytest.raises(CttaError, match=bad.name):
        run(spec, tmp_path / "run")
    assert [record.step for record in RunFolder(tmp_path / "run").records("source-s0")] == [0, 1, 2, 3]


def test_the_verb_says_what_to_type_next(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC))
    found = CliRunner().invoke(app, ["check", str(path), "--set", "data.images=20"])
    assert found.exit_code == 0
    assert f"ctta run {path} --set data.images=20" in found.output
    found = CliRunner().invoke(app, ["check", str(path), "--set", "data.severity=9"])
    assert found.exit_code == 2
    assert f"1 problem. Fix, then check again:  ctta check {path}" in found.output


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
    assert folder.run().notes == ("Only 3 of the 200 classes of ImageNet-R are in the folder; only those are scored.",)
    small = spec | {"model": SPEC["model"]}
    assert "scored on logits up to 999, and the model has 10 classes" in said(small, "problem")[0]
    with pytest.raises(InputError, match="scored on logits up to 999"):
        run(small, tmp_path / "small")


def test_every_kind_of_point_is_checked_once():
    grid = {"data.batch": [5, 10], "protocol.order": [0, 1], "method.lr": [0.1, 0.2, -1]}
    found = list(check(SWEPT | {"protocol": {"kind": "continual"}, "grid": grid}))
    texts = [finding.text for finding in found]
    assert texts[0] == "12 points, 2 x 2 x 3: data.batch, protocol.order, method.lr"
    assert sum("'lr' of DSSConfig" in text for text in texts) == 1
    assert [text.split(", each")[0] for text in texts if "batches of up to" in text] == [
        "Fashion-MNIST (embedded): 1 domain, 4 batches of up to 5",
        "Fashion-MNIST (embedded): 1 domain, 2 batches of up to 10",
    ]
    assert sum(text.startswith("dss-s0") for text in texts) == 1
