"""Going back to the state before a batch, so that a batch that fails leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Kept:
    """A tensor, its value before the current batch, and torch's count of its changes at that time."""

    tensor: Tensor
    value: Tensor
    version: int
    shared: bool = False  # whether the value belongs to somebody else
    counted: bool = True  # whether every change is counted

    @property
    def changed(self) -> bool:
        return self.tensor._version != self.version

    @property
    def suspect(self) -> bool:
        return self.changed or not self.counted


class Before:
    """The values that tensors had before the current batch.

    A value is copied only if its tensor has changed since the last copy, so the cost is that of what learns.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}

    def share(self, tensors: Iterable[Tensor], values: Iterable[Tensor]) -> None:
        """Take values that the tensors have now and that nobody changes, without a copy."""
        for tensor, value in zip(tensors, values, strict=True):
            self._kept[id(tensor)] = Kept(tensor, value, tensor._version, shared=True)

    @torch.no_grad()
    def keep(self, tensors: Iterable[Tensor], uncounted: Iterable[Tensor] = ()) -> None:
        """Keep the values that these tensors have now; `uncounted`: those of them that a model may change by .data."""
        unsure = {id(tensor) for tensor in uncounted}
        kept, stale = {}, []
        for tensor in tensors:
            entry = self._kept.get(id(tensor))
            if entry is None or (entry.changed and entry.shared):
                entry = Kept(tensor, tensor.detach().clone(), tensor._version, counted=id(tensor) not in unsure)
            elif entry.suspect:
                stale.append(entry)
            kept[id(tensor)] = entry
        if stale:
            torch._foreach_copy_([entry.value for entry in stale], [entry.tensor for entry in stale])
        for entry in stale:
            entry.version = entry.tensor._version
        self._kept = kept

    def copies(self) -> list[Tensor]:
        """The values that are kept as copies."""
        return [entry.value for entry in self._kept.values() if not entry.shared]

    def untouched(self, tensor: Tensor) -> bool:
        """Whether a tensor still has the value that it shares with somebody else."""
        entry = self._kept.get(id(tensor))
        return entry is not None and entry.shared and not entry.changed

    def changed(self) -> list[Tensor]:
        """The tensors that have changed since they were kept."""
        return [entry.tensor for entry in self._kept.values() if entry.changed]

    @torch.no_grad()
    def restore(self) -> None:
        """Give all tensors the values that were kept."""
        for entry in self._kept.values():
            if entry.suspect:
                entry.tensor.copy_(entry.value)
                entry.version = entry.tensor._version


def all_finite(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Whether each of the floating-point tensors has only finite values, 0-d, without a read on the host."""
    values = [tensor.detach() for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    return [size.isfinite() for size in torch._foreach_norm(values, float("inf"))] if values else []
