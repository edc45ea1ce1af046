"""What protocols are made of: orders of samples, and domains made of other domains.

Nothing is copied: a domain loads any of its rows in any order, and a combinator chooses the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, InputError
from ctta.data.corruptions.clouds import POINTS
from ctta.data.dataset import DataSet
from ctta.data.stream import Domain, Labels, Rows, Samples


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


def reordered(domain: Domain, rows: Rows) -> Domain:
    """Return some samples of a domain, in another order."""
    corrupt = domain.corrupt
    return Domain(
        domain.name,
        domain.severity,
        domain.labels[rows],
        lambda chosen: domain.read(rows[chosen]),
        corrupt and (lambda samples, chosen: corrupt(samples, rows[chosen])),
    )


def replaced(domain: Domain, rows: Rows, make: Callable[[int, Samples], Samples]) -> Domain:
    """Return some samples of a domain, and others without a label in between: those that `make` returns for ~row.

    A row is negative if it is made. `make` is also given a sample of the domain, whose form it keeps.
    """

    def read(chosen: Rows) -> Samples:
        here = rows[chosen]
        kept = here >= 0
        found: NDArray[Any] = domain.read(here[kept] if kept.any() else np.zeros(1, np.int64))
        made = np.empty((len(here), *found.shape[1:]), found.dtype)
        made[kept] = found[: kept.sum()]
        for place in np.flatnonzero(~kept):
            made[place] = make(int(~here[place]), found[0])
        return made

    labels = np.where(rows >= 0, domain.labels[np.maximum(rows, 0)], -1)
    return Domain(domain.name, domain.severity, labels, read)


def constant(like: Samples, level: float) -> Samples:
    """Return a sample of one value: a level between black and white, or one place for all points."""
    return np.full_like(like, level * 255 if like.dtype == np.uint8 else level)


def noise(like: Samples, generator: Generator) -> Samples:
    """Return a sample of uniform pixels, or of points that are uniform in the unit ball."""
    if like.dtype == np.uint8:
        return generator.integers(0, 256, like.shape, np.uint8)
    points = generator.standard_normal(like.shape)
    radius = np.cbrt(generator.random((len(points), 1)))
    made: Samples = (radius * points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    return made


def blend(name: str, severity: int, parts: Sequence[Domain], which: NDArray[np.int64], rows: Rows) -> Domain:
    """Return samples of several domains in one order, each given by its part and its row there.

    Point clouds get one size.
    """

    def read(chosen: Rows) -> Samples:
        here = which[chosen]
        found: list[NDArray[Any]] = [
            of_one_size(parts[part].read(rows[chosen[here == part]])) for part in np.unique(here)
        ]
        by_part = np.argsort(here, kind="stable")
        return np.concatenate(found)[np.argsort(by_part)]

    starts = np.cumsum([0, *(len(part) for part in parts)])
    labels = np.concatenate([part.labels for part in parts])[starts[which] + rows]
    return Domain(name, severity, labels, read)


def both(first: Domain, second: Domain, dataset: DataSet) -> Domain:
    """Return the samples of one domain, corrupted by another, if the data set is corrupted on the fly."""
    if not second.severity:
        return first
    corrupt = second.corrupt
    if corrupt is None:
        raise ConfigError(
            f"drift corrupts clean samples, and those of {dataset.title} are stored. Use a data set that is corrupted "
            "on the fly."
        )
    name, severity = f"{first.name}>{second.name}", first.severity + second.severity
    return Domain(name, severity, first.labels, lambda rows: corrupt(first.read(rows), rows))


def of_one_size(samples: Samples) -> Samples:
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
