"""Batch, Domain, Stream: labelled data in the order in which the adapter meets it.

A stream can be walked again and again and is the same each time. `batches(start=k)` begins at batch k without making
the ones before it. Only one batch is in memory, and the few that are loaded `ahead`, however long the stream is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta.base.errors import ConfigError
from ctta.base.prefetch import ahead

Images = NDArray[np.uint8]  # (N, H, W, 3)
Clouds = NDArray[np.float32]  # (N, P, 3)
Labels = NDArray[np.int64]  # (N,)
Rows = NDArray[np.int64]  # which samples of a domain


@dataclass(frozen=True)
class Batch:
    """A few samples of one domain. Labels go round the adapter, never through it."""

    x: Tensor  # float32: images (N, 3, H, W) in [0, 1], or clouds (N, P, 3)
    y: Tensor  # (N,), -1 where a label is not known
    domain: str
    severity: int
    position: int  # which domain of the stream
    step: int  # which batch of the stream
    first: bool  # whether it opens its domain
    last: bool  # whether it closes it
    scored: tuple[int, ...] = ()  # the logits that count; without any, all do

    def answer(self, logits: Tensor) -> Tensor:
        """The label that each row of logits names, among those that count."""
        return answer(logits, self.scored)


def answer(logits: Tensor, scored: tuple[int, ...] = ()) -> Tensor:
    """The label that each row of logits names, among those `scored`; all are where none is given."""
    if not scored:
        return logits.argmax(1)
    which = torch.tensor(scored, device=logits.device)
    return which[logits[:, which].argmax(1)]


class Domain(Protocol):
    """One stretch of the stream."""

    @property
    def name(self) -> str: ...

    @property
    def severity(self) -> int: ...

    @property
    def labels(self) -> Labels: ...

    def __len__(self) -> int: ...

    def load(self, rows: Rows) -> tuple[Images | Clouds, Labels]:
        """These samples in this order, the same ones whatever else is loaded."""
        ...


@dataclass(frozen=True)
class Stream:
    """Domains one after the other, cut into batches; the last batch of a domain may be smaller."""

    domains: tuple[Domain, ...]
    batch: int
    classes: tuple[str, ...] = ()
    scored: tuple[int, ...] = ()  # the logits that count, where the model has more classes than the data; labels stay
    notes: tuple[str, ...] = ()  # sentences that belong beside the numbers
    fingerprint: str = ""  # tells the data from other data, wherever they lie
    ahead: int = 0  # batches that are loaded while one is in use

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"A batch must hold at least 1 sample. Got {self.batch}.")

    def __len__(self) -> int:
        return sum(self._count(domain) for domain in self.domains)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Batch `start` and all that follow."""
        for place, (samples, labels) in ahead(self._load, self._places(start), self.ahead):
            position, number, step = place
            domain = self.domains[position]
            yield Batch(
                to_tensor(samples),
                torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64)),
                domain.name,
                domain.severity,
                position,
                step,
                first=number == 0,
                last=number == self._count(domain) - 1,
                scored=self.scored,
            )

    def position(self, step: int) -> int:
        """Which domain holds batch `step`; past the end, the number of domains."""
        for position, domain in enumerate(self.domains):
            step -= self._count(domain)
            if step < 0:
                return position
        return len(self.domains)

    def _places(self, start: int) -> Iterator[tuple[int, int, int]]:
        """Which domain, which batch of it, which batch of the stream; from batch `start` of the stream on."""
        step = 0
        for position, domain in enumerate(self.domains):
            count = self._count(domain)
            yield from ((position, number, step + number) for number in range(max(0, start - step), count))
            step += count

    def _load(self, place: tuple[int, int, int]) -> tuple[Images | Clouds, Labels]:
        position, number, _ = place
        domain = self.domains[position]
        end = min((number + 1) * self.batch, len(domain))
        return domain.load(np.arange(number * self.batch, end, dtype=np.int64))

    def _count(self, domain: Domain) -> int:
        return -(-len(domain) // self.batch)


def to_tensor(samples: Images | Clouds) -> Tensor:
    """uint8 images (N, H, W, 3) to float32 (N, 3, H, W) in [0, 1]; clouds stay as they are."""
    made = torch.from_numpy(np.array(samples))
    if samples.dtype != np.uint8:
        return made.to(torch.float32)
    return made.permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)
