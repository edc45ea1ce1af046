"""Build what an experiment names: the adapter of a method and its source data."""

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
    """The method of a cell on a source model; `detects` says whether it looks for boundaries itself."""
    kind, config = METHODS[cell.method], METHODS[cell.method].config_type.make(cell.config)
    return kind(model, config, seed=cell.seed, execution=execution, boundaries="detected" if detects else "known")


def source_batches(data: Data, adapter: Adapter) -> Iterator[tuple[Tensor, Tensor]]:
    """Clean source data with their labels, where the model is."""
    device, _ = adapter.placement
    for batch in open_stream(data):
        yield batch.x.to(device), batch.y.to(device)
