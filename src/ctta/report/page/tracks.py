"""What happened along the stream: one track per method, averaged over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import fmean

from ctta.records.run_folder import Record
from ctta.report import metrics
from ctta.report.metrics import Series, finite_mean
from ctta.report.results import Results


@dataclass(frozen=True)
class Track:
    """One method along the stream."""

    label: str
    seeds: tuple[tuple[Record, ...], ...]

    @cached_property
    def batches(self) -> dict[int, list[Record]]:
        """The records of each step, one per seed."""
        at: dict[int, list[Record]] = {}
        for record in sorted((record for records in self.seeds for record in records), key=lambda one: one.step):
            at.setdefault(record.step, []).append(record)
        return at

    @property
    def records(self) -> list[Record]:
        """All records, step by step."""
        return [record for records in self.batches.values() for record in records]

    @property
    def positions(self) -> list[int]:
        """The segment of each step."""
        return [records[0].position for records in self.batches.values()]

    def series(self, read: Callable[[Record], float | None]) -> Series:
        """One value per step, averaged over seeds."""
        return tuple(finite_mean(map(read, records)) for records in self.batches.values())

    def running_error(self, window: int) -> Series:
        """The error over the last `window` batches, in percent."""
        sizes = [fmean(record.n for record in records) for records in self.batches.values()]
        return metrics.running_error(self.series(_error), sizes, window)

    def clean_error(self) -> Series:
        """The error on clean samples in percent; each value holds until the next one."""
        found = self.series(lambda record: metrics.clean_errors([record]).get(record.position))
        return tuple(accumulate(found, lambda last, value: last if value is None else value))


def build(results: Results) -> list[Track]:
    """One track for each method that has records."""
    seeds = {label: tuple(one.records for one in runs if one.records) for label, runs in results.by_label().items()}
    return [Track(label, found) for label, found in seeds.items() if found]


def known(values: Iterable[float | None]) -> bool:
    """Whether there is anything to show."""
    return any(value is not None for value in values)


def thin(values: Sequence[float | None], every: int) -> Series:
    """Means of `every` consecutive values."""
    return tuple(finite_mean(values[start : start + every]) for start in range(0, len(values), every))


def confidence(record: Record) -> float | None:
    """As the method reports it; else the mean of its predictions."""
    if "confidence" in record.info:
        return record.info["confidence"]
    return sum(confidence for _, confidence, _ in record.bins) / record.n if record.bins else None


def selected(record: Record) -> float | None:
    """In percent."""
    return None if record.selected is None else 100 * record.selected / record.n


def _error(record: Record) -> float | None:
    return 100 * record.wrong / record.n if record.wrong >= 0 else None
