"""The metrics of a run: pure functions of records, each defined here and nowhere else.

A method run is one method with one seed; a segment is the part of the stream between two changes of domain. Errors and
shares are in percent, differences in points.

    error              wrong predictions of all predictions, each sample counted once
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

    over seeds    how far the method's own randomness moves the result on these data, from the differences of the seeds.
                  It needs two seeds that differ.
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

from ctta.records.run_folder import BINS, Done, Record

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


def complete_domains(records: Sequence[Record], done: Done | None, images: int | None) -> list[int]:
    """Positions of complete domains: the method run is done, a later domain has begun, or all images were seen."""
    sizes: dict[int, int] = {}
    for record in records:
        sizes[record.position] = sizes.get(record.position, 0) + record.n
    last = max(sizes, default=-1)
    return [
        position
        for position, n in sizes.items()
        if done is not None or position < last or (images is not None and n >= images)
    ]


def segment_counts(records: Sequence[Record], done: Done | None, images: int | None) -> dict[int, tuple[int, int]]:
    """Wrong predictions and samples of each complete segment whose labels are known."""
    unknown = {record.position for record in records if record.wrong < 0}
    counted = set(complete_domains(records, done, images)) - unknown
    counts: dict[int, tuple[int, int]] = {}
    for record in records:
        if record.position in counted:
            wrong, n = counts.get(record.position, (0, 0))
            counts[record.position] = (wrong + record.wrong, n + record.n)
    return counts


def error(counts: Counts, positions: Sequence[int]) -> float | None:
    """Over some segments; none unless all are there."""
    if not positions or not counts.keys() >= set(positions):
        return None
    wrong, n = (sum(counts[position][which] for position in positions) for which in (0, 1))
    return 100 * wrong / n


def running_error(errors: Sequence[float | None], sizes: Sequence[float], window: int | None = None) -> Series:
    """Batch by batch, the error over the last `window` batches, fewer at the start; without one, over all so far."""
    starts = [0 if window is None else max(0, end - window) for end in range(1, len(errors) + 1)]
    return tuple(_weighted_mean(errors[start:end], sizes[start:end]) for end, start in enumerate(starts, start=1))


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
    segments: dict[int, list[Record]] = {}
    for record in records:
        segments.setdefault(record.position, []).append(record)
    times = [recovery_time([r.wrong for r in found], [r.n for r in found]) for found in segments.values()]
    return finite_mean(times)


def collapsed(counts: Counts, source: Counts, ending: Sequence[int]) -> bool:
    """Whether a method run ends above Source, over the segments `ending`; both are complete."""
    own, unadapted = error(counts, ending), error(source, ending)
    assert own is not None
    assert unadapted is not None
    return own > unadapted


# Calibration


def calibration_bins(records: Iterable[Record]) -> Bins:
    """All batches together; those without labels, or with confidence that is no number, are left out."""
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


def calibration_error(bins: Bins) -> float | None:
    """ECE: the mean gap between confidence and accuracy, weighted by the bins' samples."""
    total = sum(n for n, _, _ in bins)
    return 100 * sum(abs(confidence - correct) for _, confidence, correct in bins) / total if total else None


# Selection


@dataclass(frozen=True)
class Split:
    """Samples divided by the method's selection."""

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


def splits(records: Iterable[Record]) -> dict[int, Split]:
    """By position; empty if the method selects nothing."""
    found: dict[int, Split] = {}
    for record in records:
        if record.selected is not None:
            part = Split(record.n, _label_count(record.wrong), record.selected, _label_count(record.selected_wrong))
            found[record.position] = found.get(record.position, Split()) + part
    return found


def selection(records: Iterable[Record]) -> Split | None:
    """All segments together; none if the method selects nothing."""
    found = splits(records)
    return sum(found.values(), start=Split()) if found else None


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
    by_seed = [_difference(*pair) for pair in pairs]
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
            more[place] = more.get(place, 0) + left.wrong - right.wrong
            n[place] = n.get(place, 0) + left.n
    total, k = sum(n.values()), len(n)
    if k < 2:
        return None
    mean = sum(more.values()) / total
    squares = sum((more[place] - mean * n[place]) ** 2 for place in n)
    half = _student(k - 1) * math.sqrt(k / (k - 1) * squares) / total
    return 100 * (mean - half), 100 * (mean + half)


def _difference(own: Sequence[Record], baseline: Sequence[Record]) -> float:
    left, right = (100 * sum(r.wrong for r in records) / sum(r.n for r in records) for records in (own, baseline))
    return left - right


def _student(degrees: int) -> float:
    """How many standard errors the interval reaches to each side."""
    return float(stdtrit(degrees, (1 + LEVEL) / 2))


def _label_count(count: int | None) -> int | None:
    """-1 stands for unknown in the records."""
    return None if count is None or count < 0 else count


def _sum_known(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _accuracy(n: int, wrong: int | None) -> float | None:
    return None if wrong is None or n == 0 else 100 * (n - wrong) / n


def _weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs) if pairs else None
