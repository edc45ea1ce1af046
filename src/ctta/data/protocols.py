"""Protocols: in what arrangement a stream shows its data. To add one: write its class, add its line to KINDS.

    continual         the domains one after the other, in any order
    gradual           every domain grows worse and better again, severity 1-2-3-4-5-4-3-2-1
    mixed             every batch holds samples of all domains
    sorted            within a domain, class after class
    dirichlet         within a domain, classes come in bursts
    label_shift       in every domain, other classes are rare
    recurring         the whole sequence again and again
    drift             from domain to domain, one corruption fades while the next one grows
    clean_intervals   between the domains, clean samples
    segments          the domains in turns of random length

Nothing is copied: a domain gives any of its rows in any order, and a protocol says which. Every draw is a function of
the protocol's own seed and of the domain's place, so a stream is the same each time and can be entered at any batch.
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ctta.base.config import Config, setting
from ctta.base.errors import ConfigError, InputError, nearest
from ctta.base.fileio import some
from ctta.data.corruptions import SEVERITIES
from ctta.data.dataset import CLEAN, Data, DataSet
from ctta.data.stream import Clouds, Domain, Images, Labels, Rows, Stream
from ctta.paper import orders

POINTS = 1024  # of a cloud beside clouds of other domains, whose corruptions leave more or fewer


@dataclass(frozen=True)
class Protocol(Config, ABC):
    """One arrangement, with its settings."""

    kind: str = setting("", "A name from ctta.data.protocols.KINDS; `ctta list protocols` shows them.")

    @abstractmethod
    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        """Open the data and put them in order."""

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        """What the types alone do not tell."""
        return []


@dataclass(frozen=True)
class Continual(Protocol):
    """The domains one after the other, in the order of `data.domains` or in a random one."""

    kind: Literal["continual"] = setting("continual", "This protocol.")
    order: int | str | None = setting(
        None,
        "Number of a random order of the domains, or an order of the paper's Table 4, paper-1 to paper-10; as given "
        "without it.",
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
            return [f"There is no order {self.order!r}. {nearest(self.order, orders())} Or give a number."]
        strange = [name for name in dataset.names(data) if name not in orders()[self.order]]
        told = f"{self.order} is an order of the paper's fifteen corruptions of images, without {some(strange)}."
        return [told] if strange else []


@dataclass(frozen=True)
class Gradual(Protocol):
    """Every domain grows worse and better again, all its samples at each severity."""

    kind: Literal["gradual"] = setting("gradual", "This protocol.")
    severities: tuple[int, ...] = setting((1, 2, 3, 4, 5, 4, 3, 2, 1), "The severities of a domain, in order.")
    order: int | None = setting(None, "Number of a random order of the domains; as given without it.", low=0)

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
        return found + ungraded("gradual", dataset, data)


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
        return replace(stream, domains=(Blend("mixed", severity, stream.domains, which, rows),))


@dataclass(frozen=True)
class Sorted(Protocol):
    """Within a domain, class after class by label; within a class, as the data have it."""

    kind: Literal["sorted"] = setting("sorted", "This protocol.")

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return reordered(dataset, data, lambda domain, _: np.argsort(known(domain), kind="stable"))


@dataclass(frozen=True)
class Dirichlet(Protocol):
    """Within a domain, classes come in bursts: each spreads over time slots by shares from a Dirichlet distribution.

    As Gong et al. (NOTE, NeurIPS 2022) and others have it. Within a slot the order is random.
    """

    kind: Literal["dirichlet"] = setting("dirichlet", "This protocol.")
    concentration: float = setting(0.1, "Small: a class keeps to few slots; large: it is spread evenly.", low=0.001)
    slots: int | None = setting(None, "Time slots of a domain; as many as it has classes without it.", low=1)
    seed: int = setting(0, "Seed of shares and order.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return reordered(dataset, data, self._bursts)

    def _bursts(self, domain: Domain, place: int) -> Rows:
        generator, classes = np.random.default_rng((self.seed, place)), len(np.unique(known(domain)))
        slots = self.slots or classes
        shares = generator.dirichlet(np.full(slots, self.concentration), classes)
        return spread(domain.labels, shares, generator)


@dataclass(frozen=True)
class LabelShift(Protocol):
    """In every domain, other classes are rare: samples are left out until the counts fall by rank to 1 / ratio.

    Which class has which rank is drawn anew for each domain. The kept samples stay in order.
    """

    kind: Literal["label_shift"] = setting("label_shift", "This protocol.")
    ratio: float = setting(10.0, "How many times as much is kept of the most common class as of the rarest.", low=1)
    seed: int = setting(0, "Seed of ranks and of the samples that are kept.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        return reordered(dataset, data, self._shifted)

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
    """The whole sequence of domains again and again."""

    kind: Literal["recurring"] = setting("recurring", "This protocol.")
    rounds: int = setting(2, "How often.", low=1)
    order: int | None = setting(None, "Number from which each round draws its own order; as given without it.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream = dataset.open(data, dataset.pairs(data))
        sequence = (
            stream.domains[place]
            for turn in range(self.rounds)
            for place in places(len(stream.domains), self.order, turn)
        )
        return replace(stream, domains=tuple(sequence))


@dataclass(frozen=True)
class Drift(Protocol):
    """From domain to domain, one corruption fades step by step while the next one grows.

    With n domains there are n - 1 stretches, called `fog>snow` and so on. In each, severities (a, b) of the two go from
    (s, 0) over (s - 1, 1) ... to (0, s), s being `data.severity`; the second corruption is applied to what the first
    one leaves. Every stretch shows each sample once, an equal share at each of the s + 1 steps. Steady is the sum of
    the severities: how hard a sample is for a model cannot be known without the model.
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
            made.append(Blend(f"{one}>{other}", top, parts, rows * (top + 1) // len(rows), rows))
        return replace(stream, domains=tuple(made))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        found = ungraded("drift", dataset, data)
        if dataset.holds == "corrupted":
            found.append(f"drift puts corruptions on clean samples, and {dataset.title} holds corrupted ones.")
        if len(dataset.names(data)) < 2:
            found.append("drift goes from one domain to the next. Name at least two.")
        if data.severity == 0:
            found.append("drift needs a severity of at least 1. Got data.severity 0.")
        return found


@dataclass(frozen=True)
class CleanIntervals(Protocol):
    """After every domain, or after every few, all samples as they are without corruption."""

    kind: Literal["clean_intervals"] = setting("clean_intervals", "This protocol.")
    every: int = setting(1, "Domains between two clean intervals.", low=1)

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
    """The domains in turns of random length, each going on where its last turn ended, until all samples were shown.

    Two turns in a row are of the same domain only where no other has samples left.
    """

    kind: Literal["segments"] = setting("segments", "This protocol.")
    shortest: int = setting(1, "Batches of a turn, at least.", low=1)
    longest: int = setting(10, "Batches of a turn, at most; what is left of a domain may be less.", low=1)
    seed: int = setting(0, "Seed of turns and lengths.", low=0)

    def arrange(self, dataset: DataSet, data: Data) -> Stream:
        stream = dataset.open(data, dataset.pairs(data))
        sizes = [-(-len(domain) // data.batch) for domain in stream.domains]
        turns = take_turns(sizes, self.shortest, self.longest, np.random.default_rng(self.seed))
        made = []
        for which, start, stop in turns:
            domain = stream.domains[which]
            end = min(stop * data.batch, len(domain))
            made.append(Reordered(domain, np.arange(start * data.batch, end)))
        return replace(stream, domains=tuple(made))

    def problems(self, dataset: DataSet, data: Data) -> list[str]:
        if self.shortest <= self.longest:
            return []
        return [f"shortest must not be more than longest. Got {self.shortest} and {self.longest}."]


KINDS: Mapping[str, type[Protocol]] = MappingProxyType(
    {
        "continual": Continual,
        "gradual": Gradual,
        "mixed": Mixed,
        "sorted": Sorted,
        "dirichlet": Dirichlet,
        "label_shift": LabelShift,
        "recurring": Recurring,
        "drift": Drift,
        "clean_intervals": CleanIntervals,
        "segments": Segments,
    }
)
PLAIN = Continual()


# Orders


def places(count: int, order: int | None, turn: int = 0) -> Sequence[int]:
    """0, 1, 2 ... in a random order; as they are without a number."""
    if order is None:
        return range(count)
    return [int(place) for place in np.random.default_rng((order, turn)).permutation(count)]


def spread(labels: Labels, shares: NDArray[np.float64], generator: Generator) -> Rows:
    """Each sample once, slot by slot. Shares (classes, slots) say how much of a class falls into each slot."""
    slot = np.empty(len(labels), np.int64)
    for name, share in zip(np.unique(labels), shares, strict=True):
        rows = generator.permutation(np.flatnonzero(labels == name))
        ends = np.rint(np.cumsum(share) * len(rows))[:-1]  # the last slot takes what is left
        slot[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right")
    return np.lexsort((generator.random(len(labels)), slot))


def long_tail(counts: NDArray[np.int64], ranks: NDArray[np.int64], ratio: float) -> NDArray[np.int64]:
    """What is kept of each class: all of rank 0, count / ratio of the last, by equal factors between; at least 1."""
    share = ratio ** (-ranks / max(len(ranks) - 1, 1))
    return np.maximum(np.rint(counts * share), 1).astype(np.int64)


def take_turns(
    sizes: Sequence[int], shortest: int, longest: int, generator: Generator
) -> Iterator[tuple[int, int, int]]:
    """Which one, from where to where: turns of random length until nothing is left of any."""
    done, last = [0] * len(sizes), -1
    while left := [which for which, size in enumerate(sizes) if done[which] < size]:
        others = [which for which in left if which != last] or left
        last = others[int(generator.integers(len(others)))]
        start = done[last]
        done[last] = min(start + int(generator.integers(shortest, longest + 1)), sizes[last])
        yield last, start, done[last]


# Domains made of domains


@dataclass(frozen=True)
class Reordered:
    """Some samples of a domain, in an order of their own."""

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
    """The stream as it is, each domain with the rows that are given for it and its place."""
    stream = dataset.open(data, dataset.pairs(data))
    domains = (Reordered(domain, rows(domain, place)) for place, domain in enumerate(stream.domains))
    return replace(stream, domains=tuple(domains))


@dataclass(frozen=True)
class Blend:
    """Samples of several domains in one order; clouds all of one size."""

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
        """Each part that is among these rows, and where."""
        which = self.which[rows]
        for part in np.unique(which):
            yield self.parts[part], np.flatnonzero(which == part)


@dataclass(frozen=True)
class Both:
    """What a corruption makes of another domain's samples."""

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
        return self.second.corrupt(samples, rows) if self.second.severity else samples, labels


@typing.runtime_checkable
class Corrupting(Domain, typing.Protocol):
    """A domain that is made on the fly, and can do to other samples what it does to its own."""

    def corrupt(self, samples: Images | Clouds, rows: Rows) -> Images | Clouds:
        """These samples, as if they were the ones that it has in these rows."""
        ...


def both(first: Domain, second: Domain, dataset: DataSet) -> Both:
    """One corruption over another, where the data set makes its own."""
    if not isinstance(second, Corrupting):
        raise ConfigError(
            f"drift puts corruptions on clean samples, and those of {dataset.title} are stored. Use a data set that is "
            "corrupted on the fly."
        )
    return Both(first, second)


def of_one_size(samples: Images | Clouds) -> Images | Clouds:
    """Clouds of another size become 1024 points: evenly chosen, some twice if there are fewer. Images stay."""
    if samples.ndim != 3 or samples.shape[1] == POINTS:
        return samples
    return samples[:, np.linspace(0, samples.shape[1] - 1, POINTS).round().astype(np.int64)]


# What settings alone do not tell


def ungraded(kind: str, dataset: DataSet, data: Data) -> list[str]:
    """That there are domains without severities, in words."""
    if dataset.holds == "natural":
        return [f"{kind} needs severities, and {dataset.title} has none."]
    return [f"{kind} needs severities: leave the domain {CLEAN!r} out."] if CLEAN in dataset.names(data) else []


def known(domain: Domain) -> Labels:
    """The labels, where there are any."""
    if (domain.labels < 0).any():
        raise InputError(f"This protocol goes by labels, and some samples of {domain.name} have none. Use another.")
    return domain.labels
