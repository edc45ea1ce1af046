"""How networks are run, whatever the method: precision, memory layout, compilation, views a pass.

Settings of the adapter, not of a method: they change what a pass costs, and its result by no more than rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ctta.config import Config, setting

# Values in a chunk of views: enough to keep the processor busy, few enough to stay in its cache.
CHUNK_CPU = 2**18
CHUNK_ACCELERATOR = 2**25


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
    chunk: int | None = setting(None, "Views in one pass; by their size without it.", low=1)

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

    def views_in_a_pass(self, x: Tensor) -> int:
        """How many views of this batch go through a network together."""
        limit = CHUNK_CPU if x.device.type == "cpu" else CHUNK_ACCELERATOR
        return self.chunk or max(1, limit // x.numel())


def compiled(network: nn.Module) -> bool:
    """Whether the network has been given to the compiler."""
    return getattr(network, "_compiled_call_impl", None) is not None
