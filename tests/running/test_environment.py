"""What numbers were made with."""

from __future__ import annotations

import json

import torch

from ctta.core.device import KINDS, Kind
from ctta.core.execution import Execution
from ctta.running.environment import environment


def test_the_threads_are_those_of_whoever_computes():
    found = environment()
    assert (found["threads"], environment(threads=7)["threads"]) == (torch.get_num_threads(), 7)
    assert json.loads(json.dumps(found)) == found
    assert all(found.values())


def test_the_stamp_names_device_driver_and_precision(monkeypatch):
    assert (environment()["device"], environment()["precision"]) == ("cpu", "full")
    assert "driver" not in environment()
    kind = Kind(named=lambda device: f"Product {device.index}", driver=lambda: "550.54, CUDA 12.4")
    monkeypatch.setitem(KINDS, "cuda", kind)
    found = environment(Execution(device="cuda:1", precision="bfloat16"))
    assert (found["device"], found["accelerator"]) == ("cuda:1", "Product 1")
    assert (found["driver"], found["precision"]) == ("550.54, CUDA 12.4", "bfloat16")
