"""How networks are run, whatever the method: device, precision, memory layout, compilation, augmented views per pass.

Settings of the adapter, not of a method: they change what a pass costs, and its result only by rounding.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from ctta.base.config import Config, setting
from ctta.base.errors import ConfigError
from ctta.core.device import AUTO, kind_of, resolve

log = logging.getLogger("ctta")

# Values in one pass of augmented views: enough to keep the processor busy, few enough to stay in its cache.
PASS_CPU = 2**18
PASS_ACCELERATOR = 2**25
# Of the device's memory, for each value of a pass: wide networks hold some hundred activations per value of the input.
BYTES_PER_VALUE = 2**12
# Values in all parallel passes on a CPU together, which bounds their memory.
PARALLEL_CPU = 2**22


@dataclass(frozen=True)
class Execution(Config):
    """How networks are run. The defaults work with any network; `FAST` is quicker and assumes a little.

    `views_per_pass` and `parallel_passes` assume that samples of a batch meet only in torch's own BatchNorm layers,
    and that a forward pass neither draws random numbers nor counts its calls. `channels_last` assumes that the
    network's code does not depend on the order of values in memory (`view` behind a convolution).
    """

    device: str | None = setting(
        None, "Where networks run: auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:1, mps; none: where they are."
    )
    precision: Literal["auto", "full", "bfloat16", "autocast"] = setting(
        "full",
        "The weights' own precision; bfloat16 in passes without gradient; or bfloat16 autocast in all. auto: bfloat16 "
        "on a device that is fast in it.",
    )
    channels_last: bool = setting(
        False, "Channels-last layout for mean teachers, their students and networks that see many augmented views."
    )
    compile: bool = setting(False, "torch.compile; the first batches are slow, and it needs a compiler.")
    views_per_pass: int | Literal["auto"] = setting(
        1, "Augmented views of a batch per forward pass; auto: by their size.", low=1, was="chunk"
    )
    parallel_passes: int | Literal["auto"] = setting(
        1, "Parallel passes of augmented views on a CPU; auto: by their size and torch's threads.", low=1, was="lanes"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("views_per_pass", "parallel_passes") if getattr(self, name) not in (1, "auto")]
        if self.compile and given:
            raise ConfigError(
                f"{' and '.join(given)} would have no effect with compile, which takes one view per pass. Remove one."
            )

    def resolved(self) -> Execution:
        """With a device that is there, and the precision that `auto` means on it."""
        device = resolve(self.device or AUTO)
        return self.on(device).replace(device=str(device))

    def on(self, device: torch.device) -> Execution:
        """With the precision that `auto` means on this device; one that does not help is reported."""
        fast = kind_of(device).fast_bfloat16()
        if self.precision == "auto":
            return self.replace(precision="bfloat16" if fast else "full")
        if self.precision != "full" and fast is False:
            _report_slow(self.precision, device.type)
        return self

    @contextmanager
    def scope(self, device: torch.device, *, grad: bool) -> Iterator[None]:
        """Gradient mode and precision of one pass."""
        narrow = self.precision == "autocast" or (self.precision == "bfloat16" and not grad)
        with torch.set_grad_enabled(grad):
            if narrow:
                with torch.autocast(device.type, torch.bfloat16):
                    yield
            else:
                yield

    def arrange(self, x: Tensor, count: int) -> tuple[int, int]:
        """How `count` augmented views of this batch go through a network: views per pass, and parallel passes."""
        if self.compile:
            return 1, 1
        parallel = min(count, self.passes_at_once(x))
        rounds = math.ceil(count / (parallel * self.views_at_once(x)))
        return math.ceil(count / (parallel * rounds)), parallel  # even, so that no pass waits for another

    def passes_at_once(self, x: Tensor) -> int:
        """How many passes of views of this batch run in parallel, at most."""
        # The caller's own autocast holds only in the caller's thread.
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return 1
        if self.parallel_passes != "auto":
            return self.parallel_passes
        return max(1, min(torch.get_num_threads(), PARALLEL_CPU // x.numel()))

    def views_at_once(self, x: Tensor) -> int:
        """How many views of this batch go through a network in one pass, at most."""
        if self.views_per_pass != "auto":
            return self.views_per_pass
        limit, memory = PASS_CPU if x.device.type == "cpu" else PASS_ACCELERATOR, kind_of(x.device).memory
        if memory is not None:
            limit = min(limit, memory(x.device) // BYTES_PER_VALUE)
        return max(1, limit // x.numel() // self.passes_at_once(x))


@cache  # once
def _report_slow(precision: str, kind: str) -> None:
    log.warning(
        "precision %r does not help on this device (%s), which has no instructions for bfloat16: passes may take "
        "several times as long as in float32. Use precision: auto, or full.",
        precision,
        kind,
    )


# What `ctta run`, the demo and `make bench` use, unless an experiment says otherwise.
FAST = Execution(channels_last=True, views_per_pass="auto", parallel_passes="auto")
