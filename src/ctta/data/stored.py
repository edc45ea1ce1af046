"""Samples that are stored as the stream gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ctta.data.stream import Images, Labels, Rows


class Source(Protocol):
    """Images by row: an array, or files that are read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Rows, /) -> Images: ...


@dataclass(frozen=True)
class StoredDomain:
    """Images and labels as they are."""

    name: str
    severity: int
    images: Source
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[Images, Labels]:
        return self.images[rows], self.labels[rows]
