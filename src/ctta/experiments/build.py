"""Build the adapter of a method run, and its batches of source data."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from ctta.core.adapter import Adapter
from ctta.core.execution import Execution
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.methods import METHODS
from ctta.records.run_folder import Cell


def make_adapter(cell: Cell, model: nn.Module, execution: Execution | None = None, *, detects: bool = False) -> Adapter:
    """Build the method of a run on a source model; `detects`: it detects domain boundaries itself."""
    kind, config = METHODS[cell.method], METHODS[cell.method].config_type.make(cell.config)
    return kind(model, config, seed=cell.seed, execution=execution, boundaries="detected" if detects else "known")


def source_batches(data: Data, adapter: Adapter) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield clean source data with their labels, on the device of the model."""
    device, _ = adapter.placement
    for batch in open_stream(data):
        yield batch.x.to(device), batch.y.to(device)
