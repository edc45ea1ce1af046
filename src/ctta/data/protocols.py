"""Protocols: the order in which a stream presents its data. To add one: write its class and add it to ALL.

Every draw is a function of the protocol's own seed and of the domain's position, so a stream is the same each time and
can start at any batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from types import MappingProxyType
from typing import Literal

import numpy as np

from ctta.base.config import Config, setting
from ctta.base.errors import InputError, nearest
from ctta.base.fileio import some
from ctta.base.limits import REPEATS, SEGMENTS, SLOTS
from ctta.base.text import quoted
from ctta.data.combine import (
    blend,
    both,
    constant,
    known,
    long_tail,
    noise,
    places,
    reordered,
    replaced,
    spread,
    take_turns,
)
from ctta.data.corruptions import SEVERITIES
from ctta.data.dataset import CLEAN, Data, DataSet
from ctta.data.stream import Domain, Rows, Samples, Stream
from ctta.paper import orders

DEAD = (0.0, 1.0, 0.5)  # what a dead sensor delivers, in turn, as fractions of white


@dataclass(frozen=True)
class Protocol(Config, ABC):
    """An order of the data, with its settings."""

    kind: str = setting("", "A name from `ctta list protocols`.")

    @abstractmethod
    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        """Open the data and arrange them."""

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        """Return what is wrong with the settings, beyond their types."""
        return []


def without_severity(kind: str, dataset: DataSet, data: Data) -> list[str]:
    """Report domains without severity."""
    if dataset.holds == "natural":
        return [f"{kind} needs severities, and {dataset.title} has none."]
    return [f"{kind} needs severities: leave the domain {CLEAN!r} out."] if CLEAN in dataset.names(data) else []


@dataclass(frozen=True)
class Continual(Protocol):
    """The domains one after the other, in the order of `data.domains`, in a random order, or in one of the paper's."""

    kind: Literal["continual"] = setting("continual", "This protocol.")
    order: int | str | None = setting(
        None,
        "Seed of a random order of the domains, or an order of the paper's Table 4, paper-1 to paper-10. Default: as "
        "given.",
        low=0,
    )

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        pairs = dataset.pairs(data)
        if isinstance(self.order, str):
            return dataset.open(data, tuple(sorted(pairs, key=lambda pair: orders()[str(self.order)].index(pair[0]))))
        return dataset.open(data, tuple(pairs[place] for place in places(len(pairs), self.order)))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        if not isinstance(self.order, str):
            return []
        if self.order not in orders():
            return [f"There is no order {quoted(self.order)}. {nearest(self.order, orders())} Or give a number."]
        strange = [name for name in dataset.names(data) if name not in orders()[self.order]]
        told = f"{self.order} is an order of the paper's fifteen corruptions of images, without {some(strange)}."
        return [told] if strange else []


@dataclass(frozen=True)
class Gradual(Protocol):
    """In every domain, severity rises and falls; all its samples are shown at each severity."""

    kind: Literal["gradual"] = setting("gradual", "This protocol.")
    severities: tuple[int, ...] = setting((1, 2, 3, 4, 5, 4, 3, 2, 1), "The severities of a domain, in order.")
    order: int | None = setting(None, "Seed of a random order of the domains. Default: as given.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        names = dataset.names(data)
        ordered = (names[place] for place in places(len(names), self.order))
        return dataset.open(data, tuple((name, severity) for name in ordered for severity in self.severities))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        found = []
        if not self.severities or not set(self.severities) <= set(SEVERITIES):
            found.append(f"severities must be a list of 1 to 5, at least one. Got {list(self.severities)}.")
        if data.severity != Data().severity:
            found.append(f"gradual has severities of its own. Leave data.severity out. Got {data.severity}.")
        return found + without_severity("gradual", dataset, data)


@dataclass(frozen=True)
class Mixed(Protocol):
    """All samples of all domains in one random order, as one domain called `mixed`."""

    kind: Literal["mixed"] = setting("mixed", "This protocol.")
    seed: int = setting(0, "Seed of the order.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream = dataset.open(data, dataset.pairs(data))
        sizes = [len(domain) for domain in stream.domains]
        order = np.random.default_rng(self.seed).permutation(sum(sizes))
        which = np.repeat(np.arange(len(sizes)), sizes)[order]
        rows = np.concatenate([np.arange(size) for size in sizes])[order]
        severity = max(domain.severity for domain in stream.domains)
        return replace(stream, domains=(blend("mixed", severity, stream.domains, which, rows),))


def _reordered(dataset: DataSet, data: Data, rows: Callable[[Domain, int], Rows]) -> Stream:
    """Open the data with the rows that are given per domain and its position."""
    stream = dataset.open(data, dataset.pairs(data))
    domains = (reordered(domain, rows(domain, place)) for place, domain in enumerate(stream.domains))
    return replace(stream, domains=tuple(domains))


def _shuffled(dataset: DataSet, data: Data, seed: int) -> Stream:
    """Open the data, every domain in a random order."""
    return _reordered(
        dataset, data, lambda domain, place: np.random.default_rng((seed, place)).permutation(len(domain))
    )


@dataclass(frozen=True)
class Sorted(Protocol):
    """Within a domain, samples sorted by label; within a class, in the order of the data."""

    kind: Literal["sorted"] = setting("sorted", "This protocol.")

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return _reordered(dataset, data, lambda domain, _: np.argsort(known(domain), kind="stable"))


@dataclass(frozen=True)
class Dirichlet(Protocol):
    """Within a domain, classes come in bursts: each is spread over time slots by a Dirichlet distribution.

    This is the protocol of Gong et al. (NOTE, NeurIPS 2022) and others. Within a slot the order is random.
    """

    kind: Literal["dirichlet"] = setting("dirichlet", "This protocol.")
    concentration: float = setting(0.1, "If small, a class is in few slots; if large, it is spread evenly.", low=0.001)
    slots: int | None = setting(None, "Time slots per domain. Default: its number of classes.", low=1, high=SLOTS)
    seed: int = setting(0, "Seed of the distribution and the order.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return _reordered(dataset, data, self._bursts)

    def _bursts(self, domain: Domain, place: int) -> Rows:
        generator, classes = np.random.default_rng((self.seed, place)), len(np.unique(known(domain)))
        slots = self.slots or classes
        shares = generator.dirichlet(np.full(slots, self.concentration), classes)
        return spread(domain.labels, shares, generator)


@dataclass(frozen=True)
class Bursts(Protocol):
    """Within a domain, bursts of a fixed length, each of one class, in random order; a length of 1 is a shuffle.

    The samples, sorted by label, are cut into bursts: one that begins at the end of a class goes on with the next.
    """

    kind: Literal["bursts"] = setting("bursts", "This protocol.")
    length: int = setting(12, "Samples per burst.", low=1)
    seed: int = setting(0, "Seed of the order.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return _reordered(dataset, data, self._bursts)

    def _bursts(self, domain: Domain, place: int) -> Rows:
        by_class = np.argsort(known(domain), kind="stable")
        burst = np.arange(len(by_class)) // self.length
        turns = np.random.default_rng((self.seed, place)).permutation(burst[-1] + 1)
        return by_class[np.argsort(turns[burst], kind="stable")]


@dataclass(frozen=True)
class OneClass(Protocol):
    """First one class only, domain by domain, again and again; then all samples of every domain, shuffled."""

    kind: Literal["one_class"] = setting("one_class", "This protocol.")
    label: int | None = setting(None, "The class. Default: the most frequent one of each domain.", low=0)
    repeats: int = setting(4, "How often each sample of the class is shown.", low=1, high=REPEATS)
    seed: int = setting(0, "Seed of the shuffle.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        same, all_classes = _reordered(dataset, data, self._same), _shuffled(dataset, data, self.seed)
        return replace(same, domains=(*same.domains, *all_classes.domains))

    def _same(self, domain: Domain, _: int) -> Rows:
        label = np.bincount(known(domain)).argmax() if self.label is None else self.label
        rows = np.flatnonzero(domain.labels == label)
        if not len(rows):
            raise InputError(
                f"No sample of {domain.name} has the label {label}. Set protocol.label to one that exists."
            )
        return np.tile(rows, self.repeats)


@dataclass(frozen=True)
class LabelShift(Protocol):
    """In every domain, other classes are rare: samples are dropped so that class counts fall by rank to 1 / ratio.

    The ranks of the classes are drawn per domain. The kept samples stay in order.
    """

    kind: Literal["label_shift"] = setting("label_shift", "This protocol.")
    ratio: float = setting(10.0, "Ratio of the counts of the most common and the rarest class.", low=1)
    seed: int = setting(0, "Seed of the ranks and of the samples that are kept.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return _reordered(dataset, data, self._shifted)

    def _shifted(self, domain: Domain, place: int) -> Rows:
        generator = np.random.default_rng((self.seed, place))
        classes, counts = np.unique(known(domain), return_counts=True)
        kept = long_tail(counts, generator.permutation(len(classes)), self.ratio)
        rows = [
            generator.permutation(np.flatnonzero(domain.labels == one))[:n]
            for one, n in zip(classes, kept, strict=True)
        ]
        return np.sort(np.concatenate(rows))


@dataclass(frozen=True)
class Recurring(Protocol):
    """The whole sequence of domains, repeated."""

    kind: Literal["recurring"] = setting("recurring", "This protocol.")
    rounds: int = setting(2, "Number of repetitions.", low=1)
    order: int | None = setting(None, "Seed from which each round draws its own order. Default: as given.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream = dataset.open(data, dataset.pairs(data))
        sequence = (
            stream.domains[place]
            for turn in range(self.rounds)
            for place in places(len(stream.domains), self.order, turn)
        )
        return replace(stream, domains=tuple(sequence))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        count = self.rounds * len(dataset.names(data))
        return [f"{count:,} domains are too long a stream; {SEGMENTS:,} is the limit."] if count > SEGMENTS else []


@dataclass(frozen=True)
class Drift(Protocol):
    """From domain to domain, one corruption fades out step by step while the next one fades in.

    With n domains there are n - 1 segments, called `fog>snow` and so on. In each, the severities of the two corruptions
    go from (s, 0) over (s - 1, 1) ... to (0, s), where s is `data.severity`; the second corruption is applied to the
    output of the first. Every segment shows each sample once, the same number at each of the s + 1 steps. The sum of
    the severities is constant; how hard a sample is for a model is not.
    """

    kind: Literal["drift"] = setting("drift", "This protocol.")

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        top, changes = data.severity, list(pairwise(dataset.names(data)))
        fading = [(one, top - step) for one, _ in changes for step in range(top + 1)]
        growing = [(other, step) for _, other in changes for step in range(top + 1)]
        stream = dataset.open(data, (*fading, *growing))
        domains = zip(stream.domains[: len(fading)], stream.domains[len(fading) :], strict=True)
        steps = [both(first, second, dataset) for first, second in domains]
        made = []
        for place, (one, other) in enumerate(changes):
            parts = tuple(steps[place * (top + 1) : (place + 1) * (top + 1)])
            rows = np.arange(len(parts[0]))
            made.append(blend(f"{one}>{other}", top, parts, rows * (top + 1) // len(rows), rows))
        return replace(stream, domains=tuple(made))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        found = without_severity("drift", dataset, data)
        if dataset.holds == "corrupted":
            found.append(f"drift corrupts clean samples, and {dataset.title} holds corrupted ones.")
        if len(dataset.names(data)) < 2:
            found.append("drift goes from one domain to the next. Name at least two.")
        if data.severity == 0:
            found.append("drift needs a severity of at least 1. Got data.severity 0.")
        return found


@dataclass(frozen=True)
class CleanIntervals(Protocol):
    """After every domain, or after every few, all samples without corruption."""

    kind: Literal["clean_intervals"] = setting("clean_intervals", "This protocol.")
    every: int = setting(1, "Number of domains between two clean intervals.", low=1)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        pairs: list[tuple[str, int]] = []
        for number, pair in enumerate(dataset.pairs(data), start=1):
            pairs += [pair] if number % self.every else [pair, (CLEAN, 0)]
        return dataset.open(data, tuple(pairs))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        found = []
        if dataset.holds != "clean":
            found.append(f"clean_intervals needs clean samples, and {dataset.title} has none.")
        if self.every > (count := len(dataset.names(data))):
            found.append(f"every must be at most the number of domains, {count}. Got {self.every}.")
        return found


@dataclass(frozen=True)
class Segments(Protocol):
    """The domains in alternation, in segments of random length, until all samples were shown.

    A domain continues where its last segment ended. Two consecutive segments are of the same domain only if no other
    domain has samples left.
    """

    kind: Literal["segments"] = setting("segments", "This protocol.")
    shortest: int = setting(1, "Minimum number of batches per segment.", low=1)
    longest: int = setting(10, "Maximum number of batches per segment; the rest of a domain may be shorter.", low=1)
    seed: int = setting(0, "Seed of the order and the lengths.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream = dataset.open(data, dataset.pairs(data))
        sizes = [-(-len(domain) // data.batch) for domain in stream.domains]
        turns = take_turns(sizes, self.shortest, self.longest, np.random.default_rng(self.seed))
        made = []
        for which, start, stop in turns:
            domain = stream.domains[which]
            end = min(stop * data.batch, len(domain))
            made.append(reordered(domain, np.arange(start * data.batch, end)))
        return replace(stream, domains=tuple(made))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        if self.shortest <= self.longest:
            return []
        return [f"shortest must not be more than longest. Got {self.shortest} and {self.longest}."]


@dataclass(frozen=True)
class DeadSensor(Protocol):
    """The domains one after the other, shuffled; now and then comes a whole batch of one value, which is not scored.

    Pictures are black, white and grey in turn; the points of point clouds are all at one place. These batches come in
    addition to the samples.
    """

    kind: Literal["dead_sensor"] = setting("dead_sensor", "This protocol.")
    every: int = setting(4, "Every so many batches of the stream, the last one is dead.", low=2)
    seed: int = setting(0, "Seed of the shuffle.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream, numbers, made = _shuffled(dataset, data, self.seed), count(1), []
        for domain in stream.domains:
            parts: list[Rows] = []
            for part in np.split(np.arange(len(domain)), range(data.batch, len(domain), data.batch)):
                if (number := next(numbers)) % self.every == 0:
                    turn = (number // self.every - 1) % len(DEAD)
                    parts.append(np.full(data.batch, ~turn))
                    next(numbers)
                parts.append(part)
            made.append(replaced(domain, np.concatenate(parts), lambda turn, like: constant(like, DEAD[turn])))
        return replace(stream, domains=tuple(made), notes=(*stream.notes, "Dead batches are not scored."))


@dataclass(frozen=True)
class Poisoned(Protocol):
    """The domains one after the other, shuffled; some samples are replaced by noise, which is not scored.

    Noise is made of uniform pixels, or of points that are uniform in the unit ball.
    """

    kind: Literal["poisoned"] = setting("poisoned", "This protocol.")
    share: float = setting(0.2, "Fraction of the samples of a domain that are noise.", low=0, high=1)
    seed: int = setting(0, "Seed of the shuffle and of the noise.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream = _shuffled(dataset, data, self.seed)
        domains = (self._poisoned(domain, place) for place, domain in enumerate(stream.domains))
        return replace(stream, domains=tuple(domains), notes=(*stream.notes, "Samples of noise are not scored."))

    def _poisoned(self, domain: Domain, place: int) -> Domain:
        rows = np.arange(len(domain))
        gone = np.random.default_rng((self.seed, place, 1)).permutation(rows)[: round(self.share * len(rows))]
        rows[gone] = ~gone
        return replaced(domain, rows, partial(self._noise, place))

    def _noise(self, place: int, row: int, like: Samples) -> Samples:
        return noise(like, np.random.default_rng((self.seed, place, 2, row)))


ALL = (
    *(Continual, Gradual, Mixed, Sorted, Dirichlet, Bursts, OneClass, LabelShift, Recurring, Drift, CleanIntervals),
    *(Segments, DeadSensor, Poisoned),
)
KINDS: Mapping[str, type[Protocol]] = MappingProxyType({protocol().kind: protocol for protocol in ALL})
PLAIN = Continual()
