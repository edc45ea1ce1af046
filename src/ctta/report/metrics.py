"""The metrics of a run: pure functions of records, each defined here and nowhere else.

A method run is one method with one seed; a segment is the part of the stream between two changes of domain. Errors and
shares are in percent, differences in points.

    error              wrong predictions of all predictions for samples with labels, each sample counted once
    running error      the same over the last few batches, or over all so far
    recovery time      batches after a segment begins until its error is as low as it gets
    collapse           a method run ends above Source: over the last segment, or the last round of a recurring stream
    calibration error  ECE: the gap between confidence and accuracy, averaged over bins of confidence
    selection          accuracy of the samples that a method selects to learn from, and of those it rejects
    forgetting         error on clean samples after a segment minus that of the unadapted model; measured on request
    cost               passes, time of a batch (mean, median, 95th percentile), memory

Several seeds become mean and standard deviation, never the best of them. Methods are compared in pairs: on the same
stream, seed by seed, the error minus the baseline's. That difference has two Student's intervals at 95 %, each given
only if there are data to compute it from:

    over seeds    how far what seeds vary moves the result (the method's own draws, or also the order and the choice of
                  samples), from the differences of the seeds. It needs two seeds that differ.
    over batches  how far other samples of the same domains would move it, with the weights as they developed; another
                  seed or order may move it more. Batches with the same place in their segments form a group, all seeds
                  together, because a data set mostly shows the same samples in the same order under each corruption.

Neither interval includes the other's source of variation: three seeds that agree on a short stream agree about these
few samples. Intervals are not corrected for multiple comparisons: of twenty, one misses by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np
from scipy.special import stdtrit

from ctta.records.run_folder import Done, Record

Interval = tuple[float, float]
Series = tuple[float | None, ...]  # none if a value is not known
Counts = Mapping[int, tuple[int, int]]  # by position: wrong predictions, samples
Bins = tuple[tuple[int, float, int], ...]  # by confidence: samples, sum of confidence, correct

TOLERANCE = 1.0  # points above its final level at which a segment counts as recovered, chance aside
LEVEL = 0.95  # of confidence intervals


@dataclass(frozen=True)
class Value:
    """A number over seeds."""

    mean: float
    sd: float | None  # none with a single seed
    seeds: int
    each: tuple[float, ...] = field(default=(), compare=False, repr=False)  # if it is known

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.sd is None else f"{self.mean:.1f} ± {self.sd:.1f}"


def over_seeds(values: Iterable[float]) -> Value | None:
    """Mean and sample standard deviation."""
    found = list(values)
    if not found:
        return None
    return Value(fmean(found), stdev(found) if len(found) > 1 else None, len(found), tuple(found))


def chance(one: Value, other: Value) -> float:
    """Half the width of the interval of two means' difference, over their common seeds; 0 with a single one."""
    differences = [left - right for left, right in zip(one.each, other.each, strict=True)]
    if len(differences) < 2:
        return 0.0
    low, high = interval_over_seeds(differences)
    return (high - low) / 2


def finite_mean(values: Iterable[float | None]) -> float | None:
    """Of the values that are known and finite."""
    found = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(found) if found else None


# Error


def segments(records: Iterable[Record]) -> dict[int, list[Record]]:
    """The records of each segment, by position."""
    found: dict[int, list[Record]] = {}
    for record in records:
        found.setdefault(record.position, []).append(record)
    return found


def complete_segments(records: Sequence[Record], done: Done | None, images: int | None) -> dict[int, list[Record]]:
    """Those that are complete: the method run is done, a later segment has begun, or all images were seen."""
    found = segments(records)
    last = max(found, default=-1)
    return {
        position: batches
        for position, batches in found.items()
        if done is not None or position < last or (images is not None and sum(r.n for r in batches) >= images)
    }


def segment_counts(records: Sequence[Record], done: Done | None, images: int | None) -> dict[int, tuple[int, int]]:
    """Wrong predictions and scored samples of each complete segment that has any."""
    complete = complete_segments(records, done, images).items()
    scored = {position: [r for r in batches if r.scored] for position, batches in complete}
    return {
        position: (sum(r.wrong for r in batches), sum(r.scored for r in batches))
        for position, batches in scored.items()
        if batches
    }


def total_error(records: Iterable[Record]) -> float:
    """Over records of which some have labels."""
    found = [record for record in records if record.scored]
    return 100 * sum(record.wrong for record in found) / sum(record.scored for record in found)


def error(counts: Counts, positions: Sequence[int]) -> float | None:
    """Over some segments; none unless all are there."""
    if not positions or not counts.keys() >= set(positions):
        return None
    wrong, n = (sum(counts[position][which] for position in positions) for which in (0, 1))
    return 100 * wrong / n


def running_error(errors: Sequence[float | None], sizes: Sequence[float], window: int | None = None) -> Series:
    """Batch by batch, the error over the last `window` batches, fewer at the start; without one, over all so far."""
    series: list[float | None] = []
    for end in range(1, len(errors) + 1):
        start = 0 if window is None else max(0, end - window)
        pairs = zip(errors[start:end], sizes[start:end], strict=True)
        known = [(value, size) for value, size in pairs if value is not None]
        total = sum(size for _, size in known)
        series.append(sum(value * size for value, size in known) / total if known else None)
    return tuple(series)


# Shifts


def third(batches: float) -> int:
    """A third of a segment, in batches: short enough to see a change, long enough to see through the noise."""
    return max(1, round(batches / 3))


def recovery_time(wrong: Sequence[int], sizes: Sequence[int]) -> int | None:
    """Batches that pass in a segment before its error is as low as it gets; none if it has fewer than three.

    That level is the error over the segment's last third. The segment has recovered at the first batch that begins a
    third with an error at most TOLERANCE points above it, and one standard error of such a difference, for chance: 0 if
    it starts so, also if the error climbs.
    """
    if len(wrong) < 3:
        return None
    window = third(len(wrong))
    errors = [
        100 * sum(wrong[start : start + window]) / sum(sizes[start : start + window])
        for start in range(len(wrong) - window + 1)
    ]
    level = errors[-1]
    chance = math.sqrt(2 * level * (100 - level) / sum(sizes[-window:]))
    return next(start for start, value in enumerate(errors) if value <= level + TOLERANCE + chance)


def mean_recovery(records: Sequence[Record]) -> float | None:
    """Mean recovery time of all segments. That of Source, which learns nothing, shows the effect of chance."""
    each = segments(record for record in records if record.scored).values()
    return finite_mean(recovery_time([r.wrong for r in batches], [r.scored for r in batches]) for batches in each)


# Calibration


def calibration_bins(records: Iterable[Record]) -> Bins:
    """All batches together; those without labels, or with confidence that is no number, are left out."""
    labelled = [r.bins for r in records if r.bins and r.wrong >= 0 and all(math.isfinite(row[1]) for row in r.bins)]
    together = []
    for same_bin in zip(*labelled, strict=True):
        n, confidence, correct = map(sum, zip(*same_bin, strict=True))
        together.append((n, confidence, correct))
    return tuple(together)


def calibration_error(bins: Bins) -> float | None:
    """ECE: the mean gap between confidence and accuracy, weighted by the bins' samples."""
    total = sum(n for n, _, _ in bins)
    return 100 * sum(abs(confidence - correct) for _, confidence, correct in bins) / total if total else None


# Selection


@dataclass(frozen=True)
class Split:
    """Samples divided by the method's selection, in percent; an accuracy is none unless all labels are known."""

    share: float  # selected
    selected_accuracy: float | None
    rejected_accuracy: float | None


def selection(records: Sequence[Record]) -> Split | None:
    """All batches together; none if the method selects nothing."""
    found = [(r.n, r.wrong, r.selected, r.selected_wrong or 0) for r in records if r.selected is not None]
    if not found:
        return None
    n, wrong, selected, selected_wrong = map(sum, zip(*found, strict=True))
    labelled = all(r.scored == r.n for r in records if r.selected is not None)

    def accuracy(n: int, wrong: int) -> float | None:
        return 100 * (n - wrong) / n if labelled and n else None

    return Split(100 * selected / n, accuracy(selected, selected_wrong), accuracy(n - selected, wrong - selected_wrong))


# Forgetting


def clean_errors(records: Iterable[Record]) -> dict[int, float]:
    """Error on clean samples after each segment, by position; empty if it was not measured."""
    return {r.position: 100 * r.clean[1] / r.clean[0] for r in records if r.clean is not None}


def forgetting(records: Sequence[Record]) -> float | None:
    """Points by which the error on clean samples lies above the unadapted model's, after the last segment."""
    measured = [record.clean for record in records if record.clean is not None]
    if not measured:
        return None
    n, wrong, source_wrong = measured[-1]
    return 100 * (wrong - source_wrong) / n


# Cost


@dataclass(frozen=True)
class Cost:
    """What a method takes, over all batches of all seeds; none if it is not known."""

    seconds: float | None  # per batch, on average
    images_per_second: float | None
    memory: float | None  # MB at the peak
    forwards: float | None  # network passes per batch
    backwards: float | None
    views: float | None
    p50: float | None  # seconds that half of the batches stay below
    p95: float | None  # and 95 % of them


def cost(records: Sequence[Record], peaks: Iterable[float]) -> Cost:
    """From the batches of all seeds, and the peak memory of each seed that is complete."""
    times = [record.seconds for record in records]
    seconds = sum(times)
    p50, p95 = np.percentile(times, (50, 95)).tolist() if times else (None, None)

    def said(name: str) -> float | None:
        return finite_mean(record.info.get(name) for record in records)

    return Cost(
        seconds=seconds / len(records) if records else None,
        images_per_second=sum(record.n for record in records) / seconds if seconds > 0 else None,
        memory=finite_mean(peaks),
        forwards=said("forwards"),
        backwards=said("backwards"),
        views=said("views"),
        p50=p50,
        p95=p95,
    )


# Comparison


@dataclass(frozen=True)
class Difference:
    """An error minus the baseline's on the same stream, with its intervals if there are data for them."""

    mean: float
    over_seeds: Interval | None
    over_batches: Interval | None


def difference(own: Mapping[int, Sequence[Record]], baseline: Mapping[int, Sequence[Record]]) -> Difference | None:
    """Two methods in pairs, from the labelled records of each seed of both; none without a common seed."""
    pairs = [(own[seed], baseline[seed]) for seed in sorted(own.keys() & baseline.keys())]
    if not pairs:
        return None
    by_seed = [total_error(left) - total_error(right) for left, right in pairs]
    over_seeds = interval_over_seeds(by_seed) if len(set(by_seed)) > 1 else None
    return Difference(fmean(by_seed), over_seeds, interval_over_batches(pairs))


def interval_over_seeds(differences: Sequence[float]) -> Interval:
    """Student's, around the mean of the seeds' differences."""
    k, mean = len(differences), fmean(differences)
    half = _student(k - 1) * stdev(differences) / math.sqrt(k)
    return mean - half, mean + half


def interval_over_batches(pairs: Sequence[tuple[Sequence[Record], Sequence[Record]]]) -> Interval | None:
    """Student's, over groups of batches that have the same place in their segments; none with a single group.

    With groups of one size it is the interval around the mean of the groups' differences; a smaller group, such as the
    one of last batches, counts by its samples. There is one pair of method runs per seed.
    """
    more: dict[int, int] = {}  # by place: wrong predictions above the baseline's
    n: dict[int, int] = {}
    for own, baseline in pairs:
        starts: dict[int, int] = {}
        for left, right in zip(own, baseline, strict=True):
            place = left.step - starts.setdefault(left.position, left.step)
            if left.scored:
                more[place] = more.get(place, 0) + left.wrong - right.wrong
                n[place] = n.get(place, 0) + left.scored
    total, k = sum(n.values()), len(n)
    if k < 2:
        return None
    mean = sum(more.values()) / total
    squares = sum((more[place] - mean * n[place]) ** 2 for place in n)
    half = _student(k - 1) * math.sqrt(k / (k - 1) * squares) / total
    return 100 * (mean - half), 100 * (mean + half)


def _student(degrees: int) -> float:
    """How many standard errors the interval reaches to each side."""
    return float(stdtrit(degrees, (1 + LEVEL) / 2))
