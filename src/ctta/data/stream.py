"""Batch, Domain, Stream: labelled data in the order in which the adapter receives it.

A stream can be iterated any number of times and is the same each time. `batches(start=k)` begins at batch k without
loading those before it. Only one batch is in memory, plus the few that are loaded `ahead`, for streams of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta.base.errors import ConfigError
from ctta.base.prefetch import prefetch
from ctta.core.device import pinned, upload
from ctta.data.pictures import Images

Clouds: TypeAlias = NDArray[np.float32]  # (N, P, 3)
Samples: TypeAlias = Images | Clouds
Labels: TypeAlias = NDArray[np.int64]  # (N,)
Rows: TypeAlias = NDArray[np.int64]  # which samples of a domain
AHEAD = 2  # batches of pictures that are loaded while one is in use


@dataclass(frozen=True)
class Batch:
    """Some samples of one domain. Labels are for scoring only: the adapter never receives them."""

    x: Tensor  # float32: images (N, 3, H, W) in [0, 1], or point clouds (N, P, 3)
    y: Tensor  # (N,), -1 if a label is not known
    domain: str
    severity: int
    position: int  # number of the domain in the stream
    step: int  # number of the batch in the stream
    first: bool  # whether it is the first batch of its domain
    last: bool  # whether it is the last one
    scored: tuple[int, ...] = ()  # the logits that are scored; all if empty

    def answer(self, logits: Tensor) -> Tensor:
        """Return the predicted label per row of logits, among the scored ones."""
        return answer(logits, self.scored)


def answer(logits: Tensor, scored: tuple[int, ...] = ()) -> Tensor:
    """Return the predicted label per row of logits, among the `scored` ones; among all if there are none."""
    if not scored:
        return logits.argmax(1)
    which = torch.tensor(scored, device=logits.device)
    return which[logits[:, which].argmax(1)]


@dataclass(frozen=True)
class Domain:
    """One segment of the stream."""

    name: str
    severity: int
    labels: Labels
    read: Callable[[Rows], Samples]  # samples in any order; one does not depend on which others are read
    # If the domain is made on the fly: corrupts other samples as if they were the ones in these rows.
    corrupt: Callable[[Samples, Rows], Samples] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[Samples, Labels]:
        """Return these samples and their labels, in this order."""
        return self.read(rows), self.labels[rows]


@dataclass(frozen=True)
class Stream:
    """Domains one after the other, cut into batches; the last batch of a domain may be smaller."""

    domains: tuple[Domain, ...]
    batch: int
    classes: tuple[str, ...] = ()
    scored: tuple[int, ...] = ()  # the logits that are scored, if the model has more classes than the data; labels stay
    notes: tuple[str, ...] = ()  # sentences to be shown with the results
    fingerprint: str = ""  # identifies the data, independent of their path
    ahead: int = 0  # batches that are loaded while one is in use

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"A batch must hold at least 1 sample. Got {self.batch}.")

    def __len__(self) -> int:
        return sum(self._count(domain) for domain in self.domains)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield batch `start` and all that follow."""
        for place, (samples, labels) in prefetch(self._load, self._places(start), self.ahead):
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

    def on(self, device: torch.device, start: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the batches with their samples on the device: loaded ahead, from pinned memory, without waiting."""
        if device.type == "cpu":
            yield from ((batch, batch.x) for batch in self.batches(start))
            return
        ahead = replace(self, ahead=max(self.ahead, AHEAD))
        for batch, x in prefetch(lambda batch: pinned(batch.x, device), ahead.batches(start), AHEAD):
            yield batch, upload(x, device)

    def position(self, step: int) -> int:
        """Return the position of the domain that holds batch `step`; after the end, the number of domains."""
        for position, domain in enumerate(self.domains):
            step -= self._count(domain)
            if step < 0:
                return position
        return len(self.domains)

    def _places(self, start: int) -> Iterator[tuple[int, int, int]]:
        """Yield position of the domain, number of the batch in it, and in the stream; from batch `start` on."""
        step = 0
        for position, domain in enumerate(self.domains):
            count = self._count(domain)
            yield from ((position, number, step + number) for number in range(max(0, start - step), count))
            step += count

    def _load(self, place: tuple[int, int, int]) -> tuple[Samples, Labels]:
        position, number, _ = place
        domain = self.domains[position]
        end = min((number + 1) * self.batch, len(domain))
        return domain.load(np.arange(number * self.batch, end, dtype=np.int64))

    def _count(self, domain: Domain) -> int:
        return -(-len(domain) // self.batch)


def to_tensor(samples: Samples) -> Tensor:
    """Convert uint8 images (N, H, W, 3) to float32 (N, 3, H, W) in [0, 1], and point clouds to float32."""
    made = torch.from_numpy(np.array(samples))
    if samples.dtype != np.uint8:
        return made.to(torch.float32)
    return made.permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)
