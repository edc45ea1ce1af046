"""Build the adapter of a method run, and its batches of source data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from torch import Tensor, nn

from ctta.core.device import upload
from ctta.core.execution import Execution
from ctta.core.guard import Adapting, Guard
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.methods import find
from ctta.records.run_folder import Cell


def make_adapter(
    cell: Cell, model: nn.Module, execution: Execution | None = None, *, detects: bool = False, seeded: bool = True
) -> Adapting:
    """Build the method of a run on a source model; `detects`: it detects domain boundaries itself.

    Without `seeded`, its own draws are those of seed 0.
    """
    kind = find(cell.method)
    config = kind.config_type.make(cell.config)
    boundaries: Literal["known", "detected"] = "detected" if detects else "known"
    adapter = kind(model, config, seed=cell.seed if seeded else 0, execution=execution, boundaries=boundaries)
    return Guard(adapter) if cell.guard else adapter


def source_batches(data: Data, adapter: Adapting) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield clean source data with their labels, on the device of the model."""
    device, _ = adapter.placement
    for batch, x in open_stream(data).on(device):
        yield x, upload(batch.y, device)
