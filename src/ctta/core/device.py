"""Devices: which there are, and what differs between their kinds. The one place that tells one kind from another."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import ConfigError
from ctta.base.text import quoted

AUTO = "auto"
NARROW = ("avx512_bf16", "amx_bf16")  # instructions of a processor without which bfloat16 is slower than float32


@dataclass(frozen=True)
class Kind:
    """What a kind of device does in its own way. The defaults are those of a device about which nothing is known."""

    count: Callable[[], int] = lambda: 0
    named: Callable[[torch.device], str] = str  # the product
    driver: Callable[[], str] = str  # empty if it has none
    synchronize: Callable[[torch.device], object] = lambda device: None
    fast_bfloat16: Callable[[], bool | None] = lambda: None  # None: not known
    pins: bool = False  # whether it copies from pinned memory without waiting
    wide: bool = True  # whether it has float64
    memory: Callable[[torch.device], int] | None = None  # bytes of its own, if it has any
    # Bytes at their peak since `restart_peak`; None: it uses the memory of the process.
    peak: Callable[[torch.device], int] | None = None
    restart_peak: Callable[[torch.device], object] = lambda device: None


def processor() -> str:
    """The product name of this machine's processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(entry: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(entry):
                return line.partition(":")[2].strip()
    return ""


@cache
def _processor_is_fast_in_bfloat16() -> bool:
    return not set(NARROW).isdisjoint(_cpuinfo("flags").split())


def _cuda_driver() -> str:
    libraries = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    with suppress(OSError, IndexError):  # NVIDIA's, on Linux: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54"
        found = Path("/proc/driver/nvidia/version").read_text().partition("Module")[2].split()[0]
        return f"{found}, {libraries}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]
    return libraries


KINDS = {  # in the order in which they are chosen
    "cuda": Kind(
        torch.cuda.device_count,
        named=torch.cuda.get_device_name,
        driver=_cuda_driver,
        synchronize=torch.cuda.synchronize,
        fast_bfloat16=lambda: torch.cuda.is_bf16_supported(including_emulation=False),
        pins=True,
        memory=lambda device: torch.cuda.get_device_properties(device).total_memory,
        peak=torch.cuda.max_memory_allocated,
        restart_peak=torch.cuda.reset_peak_memory_stats,
    ),
    "mps": Kind(
        torch.mps.device_count,
        named=lambda device: processor(),
        driver=lambda: f"macOS {platform.mac_ver()[0]}",
        synchronize=lambda device: torch.mps.synchronize(),
        wide=False,
        memory=lambda device: torch.mps.recommended_max_memory(),
        peak=lambda device: torch.mps.driver_allocated_memory(),  # its pool never shrinks by itself
        restart_peak=lambda device: torch.mps.empty_cache(),
    ),
    "cpu": Kind(lambda: 1, named=lambda device: processor(), fast_bfloat16=_processor_is_fast_in_bfloat16),
}


def kind_of(device: torch.device) -> Kind:
    """What is known about devices of this kind."""
    return KINDS.get(device.type, Kind())


def available() -> list[str]:
    """The names of all devices, those that are chosen first before the others."""
    counts = {name: kind.count() for name, kind in KINDS.items()}
    return [f"{name}:{i}" if name == "cuda" else name for name, count in counts.items() for i in range(count)]


def resolve(name: str) -> torch.device:
    """The device of this name, without an index if any of its kind will do; `auto`: CUDA, else MPS, else the CPU."""
    there = available()
    if name == AUTO:
        return torch.device(torch.device(there[0]).type)
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or (device.index or 0) >= kind_of(device).count():
        raise ConfigError(f"There is no device {quoted(name)} here. Choose from: auto, {', '.join(there)}.")
    return torch.device("cpu") if device.type == "cpu" else device


def where(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was asked to."""
    kind_of(device).synchronize(device)


def pinned(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host in memory from which the device copies without waiting, if it can."""
    return x.pin_memory() if kind_of(device).pins else x


def upload(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device; nobody waits for the copy if it is pinned."""
    return x.to(device, non_blocking=kind_of(device).pins)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Take deterministic algorithms where a GPU has them; torch warns where it has none. A CPU needs none of it."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read with the first product of matrices
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fills, tunes = memory.fill_uninitialized_memory, torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # nothing reads what it has not written
    torch.backends.cudnn.benchmark = False  # the fastest algorithm may be another one at the next start
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        memory.fill_uninitialized_memory = fills
        torch.backends.cudnn.benchmark = tunes
