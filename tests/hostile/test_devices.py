"""Names of devices that are none: each is refused in a sentence that names those that are there."""

from __future__ import annotations

import pytest

from ctta import ConfigError
from ctta.core import device as devices
from ctta.core.device import Kind
from ctta.experiments import experiment as experiments
from ctta.training import recipe

KINDS = ["cuda", "cpu", "mps", "xpu", "meta", "privateuseone", "hpu", "vulkan", "fpga", "gpu", "CUDA", "Cpu"]
ENDS = ["", ":9", ":-1", ":1.0", ":0x1", ":", "::0", ":0:0", ": 0", ":99999999999999999999", ":०", ":١", "/0", "0"]
ODD = [
    "auto:0",
    "AUTO",
    "none",
    "all",
    "0",
    "-1",
    "cuda,cpu",
    "cuda:0,1",
    "cuda cpu",
    " cpu",
    "cpu ",
    "\u202ecpu",
    "x" * 5000,
]
THERE = ("auto", "cpu", "cuda", "cuda:0", "cuda:1")
NAMES = [name for name in (*(kind + end for kind in KINDS for end in ENDS), *ODD, "x" * 5000) if name not in THERE]


def train(device):
    recipe.make({"data": {"images": 9}, "model": {"name": "embedded"}, "train": {"device": device}})


def run(device):
    experiments.make({"execution": {"device": device}})


@pytest.mark.parametrize("use", [run, train])
def test_a_device_that_is_none_is_refused(monkeypatch, attempt, use):
    monkeypatch.setattr(devices, "KINDS", {"cuda": Kind(lambda: 2), "mps": Kind(), "cpu": devices.KINDS["cpu"]})
    for name in NAMES:
        attempt("devices that are none")
        with pytest.raises(ConfigError) as refusal:
            use(name)
        assert len(str(refusal.value)) < 600
        assert "Choose from: auto, cuda:0, cuda:1, cpu." in str(refusal.value) or "must be a text" in str(refusal.value)


@pytest.mark.parametrize("value", [1, 1.5, True, ["cpu"], {"cpu": 0}, ""], ids=repr)
def test_a_value_of_another_kind_is_refused(attempt, value):
    attempt("devices that are none")
    with pytest.raises(ConfigError, match="'device' of Execution must be a text or none"):
        experiments.make({"execution": {"device": value}})
