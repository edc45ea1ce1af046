"""`--device`: for every verb that runs networks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from ctta.cli.app import app
from ctta.core import device as devices
from ctta.core.device import Kind
from ctta.testing.device import pretended

TRAINING = {
    "data": {"dataset": "embedded", "images": 40},
    "model": {"factory": "tiny:network", "classes": 10},
    "train": {"epochs": 1, "batch": 20},
}
GIVEN = [((), "lazy"), (("--device", "lazy"), "lazy"), (("--device", "cpu"), "cpu")]
VERBS = ["run", "demo", "check", "train", "adapt"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def verbs(tmp_path, spec):
    """The words of each verb, without a device."""
    training, samples = tmp_path / "train.yaml", tmp_path / "x.npy"
    training.write_text(json.dumps(TRAINING))
    np.save(samples, np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8))
    small = ("--set", "data.images=8", "--set", "data.domains=[fog]", "--set", "methods=[source]")
    return {
        "run": ("run", spec(), "-o", tmp_path / "run", "-q"),
        "demo": ("demo", "-o", tmp_path / "demo", "-q", *small),
        "check": ("check", spec()),
        "train": ("train", training, "-o", tmp_path / "model.safetensors", "-q"),
        "adapt": ("adapt", "embedded", samples, "--method", "tent", "-o", tmp_path / "x.csv", "-q"),
    }


@pytest.mark.parametrize("verb", VERBS)
def test_a_device_that_is_not_there_is_an_error_that_names_those_that_are(monkeypatch, verbs, verb):
    monkeypatch.setattr(devices, "KINDS", {"cuda": Kind(lambda: 2), "mps": Kind(), "cpu": devices.KINDS["cpu"]})
    result = call(*verbs[verb], "--device", "cuda:7")
    said = " ".join((result.stdout + result.stderr).split())
    assert result.exit_code == 2, said
    assert "There is no device 'cuda:7' here. Choose from: auto, cuda:0, cuda:1, cpu." in said


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("given", "used"), GIVEN)
def test_everything_goes_there(tmp_path, verbs, verb, given, used):
    report = ("--report", tmp_path / "adapt") if verb == "adapt" else ()
    with pretended():
        result = call(*verbs[verb], *report, *given)
    assert result.exit_code == 0, result.stderr
    if verb == "check":
        assert f"on {used}, precision full" in result.stdout
        next_command = "".join(("cttarun", str(verbs[verb][1]), *given))  # the terminal wraps it
        assert "".join(result.stdout.split()).endswith(next_command)
    elif verb == "train":
        with safe_open(tmp_path / "model.safetensors", "pt") as file:
            assert json.loads(file.metadata()["recipe"])["device"] == used
    else:
        assert json.loads((tmp_path / verb / "run.json").read_text())["environment"]["device"] == used


def test_the_option_is_stronger_than_the_file(tmp_path, spec):
    path = spec(execution={"device": "nonsense"})
    assert call("run", path, "-o", tmp_path / "run", "-q").exit_code == 2
    assert call("run", path, "-o", tmp_path / "run", "-q", "--device", "cpu").exit_code == 0
