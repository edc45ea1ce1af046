"""Devices: which one is meant, what is said if it is not there, and what each kind is asked for."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
import torch

from ctta import ConfigError, Execution, Source
from ctta.core import device as devices
from ctta.core import execution
from ctta.core.device import KINDS, Kind, deterministic, pinned, resolve, upload
from ctta.core.execution import PASS_ACCELERATOR
from ctta.testing.device import pretended, waits
from tiny import network


@pytest.fixture
def machine(monkeypatch):
    """A function that says how many devices of each kind there are."""

    def has(cuda=0, mps=0, **kinds):
        found = {"cuda": Kind(lambda: cuda), "mps": Kind(lambda: mps), "cpu": Kind(lambda: 1)}
        monkeypatch.setattr(devices, "KINDS", found | kinds)

    execution._report_slow.cache_clear()
    return has


@pytest.mark.parametrize(
    ("counts", "chosen"), [({"cuda": 2, "mps": 1}, "cuda"), ({"cuda": 1}, "cuda"), ({"mps": 1}, "mps"), ({}, "cpu")]
)
def test_auto_is_cuda_then_mps_then_the_processor(machine, counts, chosen):
    machine(**counts)
    assert str(resolve("auto")) == chosen


@pytest.mark.parametrize(("name", "found"), [("cuda:1", "cuda:1"), ("cuda", "cuda"), ("cpu", "cpu"), ("cpu:0", "cpu")])
def test_a_device_by_name(machine, name, found):
    machine(cuda=2)
    assert str(resolve(name)) == found


@pytest.mark.parametrize("name", ["cuda:2", "mps", "gpu", "CUDA", "cuda:-1", "cpu:1", "meta", "xpu", "", "cuda:1:1"])
def test_a_device_that_is_not_there_names_those_that_are(machine, name):
    machine(cuda=2)
    with pytest.raises(ConfigError, match=r"There is no device .* here\. Choose from: auto, cuda:0, cuda:1, cpu\."):
        resolve(name)


@pytest.mark.parametrize(("fast", "chosen"), [(True, "bfloat16"), (False, "full"), (None, "full")])
def test_the_precision_auto_is_what_the_device_is_fast_in(machine, fast, chosen):
    machine(cuda=1, cpu=Kind(lambda: 1, fast_bfloat16=lambda: fast))
    assert Execution(device="cpu", precision="auto").resolved() == Execution(device="cpu", precision=chosen)
    assert Source(network(), execution=Execution(precision="auto")).execution == Execution(precision=chosen)


@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
def test_a_precision_that_does_not_help_is_reported_once(machine, caplog, precision):
    machine(cpu=Kind(lambda: 1, fast_bfloat16=lambda: False))
    for _ in range(2):
        assert Execution(device="cpu", precision=precision).resolved().precision == precision, (
            "it is what was asked for"
        )
    (line,) = caplog.messages
    assert f"precision '{precision}' does not help on this device (cpu)" in line


@pytest.mark.parametrize("fast", [True, None])
def test_nothing_is_reported_of_a_device_that_is_fast_or_not_known(machine, caplog, fast):
    machine(cpu=Kind(lambda: 1, fast_bfloat16=lambda: fast))
    Execution(device="cpu", precision="bfloat16").resolved()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("flags", "fast"), [("fpu avx2 avx512f avx512_bf16", True), ("avx2 amx_bf16", True), ("avx2 avx512f", False)]
)
def test_a_processor_is_fast_in_bfloat16_if_it_has_the_instructions(monkeypatch, flags, fast):
    monkeypatch.setattr(devices, "_cpuinfo", lambda entry: flags)
    devices._processor_is_fast_in_bfloat16.cache_clear()
    assert KINDS["cpu"].fast_bfloat16() is fast
    devices._processor_is_fast_in_bfloat16.cache_clear()


def test_an_adapter_goes_where_its_execution_says():
    with pretended() as device:
        model = network()
        adapter = Source(model, execution=Execution(device="auto"))
        assert adapter.placement[0] == device
        assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}, "the caller's stays"
        assert Source(network()).placement[0].type == "cpu"


def test_views_per_pass_go_by_the_memory_of_the_device(machine):
    x, auto = torch.empty(8, 3, 64, 64, device="meta"), Execution(views_per_pass="auto")
    machine(meta=Kind(memory=lambda device: 2**34))
    assert auto.views_at_once(x) == 2**34 // 2**12 // x.numel()
    machine(meta=Kind(memory=lambda device: 2**50))
    assert auto.views_at_once(x) == PASS_ACCELERATOR // x.numel()


def test_a_batch_is_copied_without_waiting_from_pinned_memory_only(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: calls.append(self) or self)
    with pretended() as device:
        x = torch.ones(2)
        with monkeypatch.context() as patch:
            patch.setitem(devices.KINDS, "lazy", Kind(pins=True))
            upload(pinned(x, device), device)
        assert calls[0] is x
        assert waits == []
        upload(pinned(x, device), device)
        assert (len(calls), waits) == (1, ["copy"])


def test_a_gpu_takes_deterministic_algorithms_and_leaves_no_trace(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with suppress(KeyError), deterministic(torch.device("cuda:1")):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled(), "an operation without one is not an error"
        assert not torch.backends.cudnn.benchmark
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.backends.cudnn.benchmark
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)


def test_a_processor_needs_no_other_algorithms():
    with deterministic(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()
