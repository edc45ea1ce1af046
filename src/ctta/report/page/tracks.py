"""What happened along the stream: one track per method, averaged over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from ctta.records.run_folder import Record
from ctta.report import metrics
from ctta.report.metrics import Bins, Series, Split, finite_mean
from ctta.report.results import Results


@dataclass(frozen=True)
class Track:
    """One method along the stream."""

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
    clean: Series  # error on clean samples as it was last measured, percent
    splits: Mapping[int, Split]  # by position, over all seeds; empty if the method selects nothing
    bins: Bins  # over all seeds; empty without labels
    calibration_error: float | None  # the mean of the seeds'


def build(results: Results) -> list[Track]:
    """One track for each method that has records."""
    seeds = {label: [one for one in runs if one.records] for label, runs in results.by_label().items()}
    return [_track(label, runs[0].cell.method, [one.records for one in runs]) for label, runs in seeds.items() if runs]


def known(values: Iterable[float | None]) -> bool:
    """Whether there is anything to show."""
    return any(value is not None for value in values)


def thin(values: Sequence[float | None], every: int) -> Series:
    """Means of `every` consecutive values."""
    return tuple(finite_mean(values[start : start + every]) for start in range(0, len(values), every))


def _track(label: str, method: str, seeds: Sequence[Sequence[Record]]) -> Track:
    at: dict[int, list[Record]] = {}
    for records in seeds:
        for record in records:
            at.setdefault(record.step, []).append(record)
    steps = tuple(sorted(at))

    def series(read: Callable[[Record], float | None]) -> Series:
        return tuple(finite_mean([read(record) for record in at[step]]) for step in steps)

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
        clean=_held(series(lambda record: metrics.clean_errors([record]).get(record.position))),
        splits=metrics.splits(everything),
        bins=metrics.calibration_bins(everything),
        calibration_error=finite_mean(
            metrics.calibration_error(metrics.calibration_bins(records)) for records in seeds
        ),
    )


def _error(record: Record) -> float | None:
    return 100 * record.wrong / record.n if record.wrong >= 0 else None


def _held(values: Series) -> Series:
    """Each value holds until the next one."""
    return tuple(accumulate(values, lambda last, value: last if value is None else value))


def _confidence(record: Record) -> float | None:
    """As the method reports it; else the mean of its predictions."""
    if "confidence" in record.info:
        return record.info["confidence"]
    return sum(confidence for _, confidence, _ in record.bins) / record.n if record.bins else None
