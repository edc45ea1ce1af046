"""How networks are run, whatever the method: precision, memory layout, compilation, views a pass.

Settings of the adapter, not of a method: they change what a pass costs, and its result by no more than rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ctta.base.config import Config, setting

# Values in a chunk of views: enough to keep the processor busy, few enough to stay in its cache.
CHUNK_CPU = 2**18
CHUNK_ACCELERATOR = 2**25
# Values in the batches that are on their way through a CPU at the same time, which bounds what the passes hold.
SIDE_BY_SIDE = 2**22


@dataclass(frozen=True)
class Execution(Config):
    """How networks are run."""

    precision: Literal["full", "bfloat16", "autocast"] = setting(
        "full", "The weights' own precision; bfloat16 in passes without gradient; or bfloat16 autocast in all."
    )
    channels_last: bool = setting(
        True,
        "Channels-last layout for mean teachers, their students and what sees many views; where their code allows it.",
    )
    compile: bool = setting(False, "torch.compile; the first batches are slow, and it needs a compiler.")
    chunk: int | None = setting(
        None, "Views on their way through a network at a time, at least one a lane; by their size without it.", low=1
    )
    lanes: int | None = setting(
        None, "Passes of views side by side on a CPU; by their size and the number of threads without it.", low=1
    )

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
        """How `count` views of this batch go through a network: so many in a pass, so many passes side by side."""
        if self.compile:
            return 1, 1
        lanes = min(count, self.passes_at_once(x))
        rounds = math.ceil(count / (lanes * self.views_in_a_pass(x)))
        return math.ceil(count / (lanes * rounds)), lanes  # even, so that no lane waits for another

    def passes_at_once(self, x: Tensor) -> int:
        """How many passes of views of this batch go side by side, if there are so many."""
        # What the caller's own autocast says holds in the caller's thread alone.
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return 1
        threads = torch.get_num_threads()
        return self.lanes or max(1, min(threads, self.chunk or threads, SIDE_BY_SIDE // x.numel()))

    def views_in_a_pass(self, x: Tensor) -> int:
        """How many views of this batch go through a network together, at most."""
        limit = CHUNK_CPU if x.device.type == "cpu" else CHUNK_ACCELERATOR
        return max(1, (self.chunk or limit // x.numel()) // self.passes_at_once(x))


def compiled(network: nn.Module) -> bool:
    """Whether the network has been given to the compiler."""
    return getattr(network, "_compiled_call_impl", None) is not None
