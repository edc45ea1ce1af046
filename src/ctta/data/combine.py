"""What protocols are made of: orders of samples, and domains made of other domains.

Nothing is copied: a domain loads any of its rows in any order, and a combinator chooses the rows.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, InputError
from ctta.data.corruptions.clouds import POINTS
from ctta.data.dataset import Data, DataSet
from ctta.data.pictures import Images
from ctta.data.stream import Clouds, Domain, Labels, Rows, Stream


def places(count: int, order: int | None, turn: int = 0) -> Sequence[int]:
    """Return 0, 1, 2 ... in a random order; without a seed, as they are."""
    if order is None:
        return range(count)
    return [int(place) for place in np.random.default_rng((order, turn)).permutation(count)]


def spread(labels: Labels, shares: NDArray[np.float64], generator: Generator) -> Rows:
    """Return every row once, slot by slot; `shares` (classes, slots) is the fraction of a class in each slot."""
    slot = np.empty(len(labels), np.int64)
    for name, share in zip(np.unique(labels), shares, strict=True):
        rows = generator.permutation(np.flatnonzero(labels == name))
        ends = np.rint(np.cumsum(share) * len(rows))[:-1]  # the last slot takes what is left
        slot[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right")
    return np.lexsort((generator.random(len(labels)), slot))


def long_tail(counts: NDArray[np.int64], ranks: NDArray[np.int64], ratio: float) -> NDArray[np.int64]:
    """Return the kept count per class: all at rank 0, count / ratio at the last, geometric between; at least 1."""
    share = ratio ** (-ranks / max(len(ranks) - 1, 1))
    return np.maximum(np.rint(counts * share), 1).astype(np.int64)


def take_turns(
    sizes: Sequence[int], shortest: int, longest: int, generator: Generator
) -> Iterator[tuple[int, int, int]]:
    """Yield which one, start and stop of segments of random length, until nothing is left of any."""
    done, last = [0] * len(sizes), -1
    while left := [which for which, size in enumerate(sizes) if done[which] < size]:
        others = [which for which in left if which != last] or left
        last = others[int(generator.integers(len(others)))]
        start = done[last]
        done[last] = min(start + int(generator.integers(shortest, longest + 1)), sizes[last])
        yield last, start, done[last]


@dataclass(frozen=True)
class Reordered:
    """Some samples of a domain, in another order."""

    domain: Domain
    rows: Rows

    @property
    def name(self) -> str:
        return self.domain.name

    @property
    def severity(self) -> int:
        return self.domain.severity

    @property
    def labels(self) -> Labels:
        return self.domain.labels[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, rows: Rows) -> tuple[Images | Clouds, Labels]:
        return self.domain.load(self.rows[rows])


def reordered(dataset: DataSet, data: Data, rows: Callable[[Domain, int], Rows]) -> Stream:
    """Open the data with the rows that are given per domain and its position."""
    stream = dataset.open(data, dataset.pairs(data))
    domains = (Reordered(domain, rows(domain, place)) for place, domain in enumerate(stream.domains))
    return replace(stream, domains=tuple(domains))


@dataclass(frozen=True)
class Blend:
    """Samples of several domains in one order; point clouds get one size."""

    name: str
    severity: int
    parts: tuple[Domain, ...]
    which: NDArray[np.int64]  # the part of each sample
    rows: Rows  # and its row there

    @property
    def labels(self) -> Labels:
        labels = np.empty(len(self), np.int64)
        for part, here in self._by_part(np.arange(len(self))):
            labels[here] = part.labels[self.rows[here]]
        return labels

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, rows: Rows) -> tuple[Images | Clouds, Labels]:
        loaded = [(here, *part.load(self.rows[rows[here]])) for part, here in self._by_part(rows)]
        back = np.argsort(np.concatenate([here for here, _, _ in loaded]))
        samples = np.concatenate([of_one_size(found) for _, found, _ in loaded])
        return samples[back], np.concatenate([labels for _, _, labels in loaded])[back]

    def _by_part(self, rows: Rows) -> Iterator[tuple[Domain, NDArray[np.int64]]]:
        """Yield each part that occurs in these rows, and where."""
        which = self.which[rows]
        for part in np.unique(which):
            yield self.parts[part], np.flatnonzero(which == part)


@typing.runtime_checkable
class Corrupting(Domain, typing.Protocol):
    """A domain that is made on the fly, and can corrupt other samples as its own."""

    def corrupt(self, samples: Images | Clouds, rows: Rows) -> Images | Clouds:
        """Corrupt other samples as if they were the ones in these rows."""
        ...


@dataclass(frozen=True)
class Both:
    """The samples of one domain, corrupted by another."""

    first: Domain
    second: Corrupting

    @property
    def name(self) -> str:
        return f"{self.first.name}>{self.second.name}"

    @property
    def severity(self) -> int:
        return self.first.severity + self.second.severity

    @property
    def labels(self) -> Labels:
        return self.first.labels

    def __len__(self) -> int:
        return len(self.first)

    def load(self, rows: Rows) -> tuple[Images | Clouds, Labels]:
        samples, labels = self.first.load(rows)
        return self.second.corrupt(samples, rows), labels


def both(first: Domain, second: Domain, dataset: DataSet) -> Domain:
    """Apply one corruption after another, if the data set is corrupted on the fly."""
    if not second.severity:
        return first
    if not isinstance(second, Corrupting):
        raise ConfigError(
            f"drift corrupts clean samples, and those of {dataset.title} are stored. Use a data set that is corrupted "
            "on the fly."
        )
    return Both(first, second)


def of_one_size(samples: Images | Clouds) -> Images | Clouds:
    """Give point clouds 1024 points: evenly chosen, some twice if there are fewer. Images stay as they are."""
    if samples.ndim != 3 or samples.shape[1] == POINTS:
        return samples
    return samples[:, np.linspace(0, samples.shape[1] - 1, POINTS).round().astype(np.int64)]


def known(domain: Domain) -> Labels:
    """Return the labels; all must be known."""
    if (domain.labels < 0).any():
        raise InputError(
            f"This protocol needs labels, and some samples of {domain.name} have none. Use another protocol."
        )
    return domain.labels
