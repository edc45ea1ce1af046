"""Domains whose samples are stored as the stream gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from ctta.data.stream import Labels, Rows


class SampleRows(Protocol):
    """Samples by row: an array, or picture files that are read when they are needed."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Rows, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class StoredDomain:
    """Stored samples and their labels."""

    name: str
    severity: int
    samples: SampleRows
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[NDArray[Any], Labels]:
        return self.samples[rows], self.labels[rows]
