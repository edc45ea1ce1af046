"""What happened along the stream, one track a label, averaged over its seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ctta.records import BINS, Record, RunFolder

Series = tuple[float | None, ...]  # one value a batch, none where it is not known


@dataclass(frozen=True)
class Split:
    """Samples of one domain, parted by the method's selection, over all seeds."""

    n: int = 0
    wrong: int | None = 0  # none without labels
    selected: int = 0
    selected_wrong: int | None = 0

    @property
    def share(self) -> float:
        """Percent selected."""
        return 100 * self.selected / self.n

    @property
    def selected_accuracy(self) -> float | None:
        return _accuracy(self.selected, self.selected_wrong)

    @property
    def rejected_accuracy(self) -> float | None:
        if self.wrong is None or self.selected_wrong is None:
            return None
        return _accuracy(self.n - self.selected, self.wrong - self.selected_wrong)

    def __add__(self, other: Split) -> Split:
        return Split(
            self.n + other.n,
            _sum_known(self.wrong, other.wrong),
            self.selected + other.selected,
            _sum_known(self.selected_wrong, other.selected_wrong),
        )


@dataclass(frozen=True)
class Track:
    """One label over the stream."""

    label: str
    method: str
    seeds: int
    steps: tuple[int, ...]
    positions: tuple[int, ...]  # the domain of each step
    sizes: tuple[float, ...]  # samples of each step
    errors: Series  # percent
    confidence: Series
    threshold: Series
    selected: Series  # percent
    splits: Mapping[int, Split]  # by position; empty where the method selects nothing
    bins: tuple[tuple[int, float, int], ...]  # samples, sum of confidence, correct; empty without labels

    def running_error(self, window: int) -> Series:
        """Error over the last `window` batches, fewer at the start."""
        return tuple(
            _weighted_mean(self.errors[max(0, end - window) : end], self.sizes[max(0, end - window) : end])
            for end in range(1, len(self.errors) + 1)
        )

    def calibration_error(self) -> float:
        """ECE in percent: mean gap between confidence and accuracy, weighted by the bins' samples."""
        total = sum(n for n, _, _ in self.bins)
        return 100 * sum(abs(confidence - correct) for _, confidence, correct in self.bins) / total


def load(folder: RunFolder) -> list[Track]:
    """One track for each label that has records."""
    groups: dict[tuple[str, str], list[list[Record]]] = {}
    for cell in folder.run().cells:
        if records := list(folder.records(cell.cell)):
            groups.setdefault((cell.label, cell.method), []).append(records)
    return [_track(label, method, seeds) for (label, method), seeds in groups.items()]


def known(values: Iterable[float | None]) -> bool:
    """Whether there is anything to show."""
    return any(value is not None for value in values)


def thin(values: Sequence[float | None], every: int) -> Series:
    """Means of `every` consecutive values."""
    return tuple(_mean(values[start : start + every]) for start in range(0, len(values), every))


def _track(label: str, method: str, seeds: Sequence[Sequence[Record]]) -> Track:
    at: dict[int, list[Record]] = {}
    for records in seeds:
        for record in records:
            at.setdefault(record.step, []).append(record)
    steps = tuple(sorted(at))

    def series(read: Callable[[Record], float | None]) -> Series:
        return tuple(_mean([read(record) for record in at[step]]) for step in steps)

    everything = [record for step in steps for record in at[step]]
    return Track(
        label=label,
        method=method,
        seeds=len(seeds),
        steps=steps,
        positions=tuple(at[step][0].position for step in steps),
        sizes=tuple(fmean(record.n for record in at[step]) for step in steps),
        errors=series(_error),
        confidence=series(_confidence),
        threshold=series(lambda record: record.info.get("threshold")),
        selected=series(lambda record: None if record.selected is None else 100 * record.selected / record.n),
        splits=_splits(everything),
        bins=_bins(everything),
    )


def _error(record: Record) -> float | None:
    return 100 * record.wrong / record.n if record.wrong >= 0 else None


def _confidence(record: Record) -> float | None:
    """As the method says; else as its answers were."""
    if "confidence" in record.info:
        return record.info["confidence"]
    return sum(confidence for _, confidence, _ in record.bins) / record.n if record.bins else None


def _splits(records: Iterable[Record]) -> dict[int, Split]:
    splits: dict[int, Split] = {}
    for record in records:
        if record.selected is not None:
            part = Split(record.n, _label_count(record.wrong), record.selected, _label_count(record.selected_wrong))
            splits[record.position] = splits.get(record.position, Split()) + part
    return splits


def _bins(records: Iterable[Record]) -> tuple[tuple[int, float, int], ...]:
    labelled = [r.bins for r in records if r.bins and r.wrong >= 0 and all(math.isfinite(row[1]) for row in r.bins)]
    if not labelled:
        return ()
    return tuple(
        (
            sum(bins[b][0] for bins in labelled),
            sum(bins[b][1] for bins in labelled),
            sum(bins[b][2] for bins in labelled),
        )
        for b in range(BINS)
    )


def _label_count(count: int | None) -> int | None:
    """-1 stands for unknown in the records."""
    return None if count is None or count < 0 else count


def _sum_known(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _accuracy(n: int, wrong: int | None) -> float | None:
    return None if wrong is None or n == 0 else 100 * (n - wrong) / n


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(found) if found else None


def _weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs) if pairs else None
