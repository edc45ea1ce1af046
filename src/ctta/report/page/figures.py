"""The page's figures: which data, which chart, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

from markupsafe import Markup

from ctta.records.run_folder import GuardEvent, Record
from ctta.report import metrics
from ctta.report.page import charts
from ctta.report.page.charts import Band, Lines, Series, Style
from ctta.report.results import Results
from ctta.report.tables.errors import ErrorTable

MOST_POINTS = 2000  # a longer line is thinned: the screen has no more
THRESHOLD = Style(8, "7 3", "diamond")  # a colour that no method has
CLEAN = (
    "Evaluated at the end of each domain, without learning from them; a value holds until the next. A line that rises "
    "shows forgetting."
)
DIFFERENCE = (
    "The same as the difference to Source in percentage points: below the line a method makes fewer mistakes than the "
    "model would without adapting, above it more."
)
CHANGED = "How many predictions of each batch differ from the unadapted model's. More of them need not be better ones."
SELECTED = "How much of each batch was selected to learn from."
CONFIDENCE = "Mean confidence of the predictions in each batch. High confidence does not mean high accuracy."
SOURCE = "Source"  # the unadapted model's name where it is no row of the run
BOUNDARIES = {  # what the threshold does at a domain boundary
    "known": " Domain boundaries are known: there it is reset half-way to chance level.",
    "detected": " At each detected domain boundary it is reset half-way to chance level.",
    "unknown": " Domain boundaries are unknown to the method.",
}


@dataclass(frozen=True)
class Figure:
    """A chart with its words and its data."""

    name: str
    title: str
    reading: str  # how to read it
    svg: Markup
    data: Mapping[str, Any]
    legend: tuple[tuple[str, Markup], ...] = ()  # labels and their swatches


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
        return [record for records in self.batches.values() for record in records]

    @property
    def positions(self) -> list[int]:
        """The segment of each step."""
        return [records[0].position for records in self.batches.values()]

    def series(self, read: Callable[[Record], float | None]) -> metrics.Series:
        """One value per step, averaged over seeds."""
        return tuple(metrics.finite_mean(map(read, records)) for records in self.batches.values())

    @property
    def window(self) -> int:
        """Over how many batches a running error is taken."""
        return metrics.third(len(self.batches) / len(set(self.positions)))

    def running_error(self, window: int) -> metrics.Series:
        """The error over the last `window` batches, in percent."""
        sizes = [fmean(record.scored for record in records) for records in self.batches.values()]
        return metrics.running_error(self.series(error_in), sizes, window)

    def clean_error(self) -> metrics.Series:
        """The error on clean samples in percent; each value holds until the next one."""
        found = self.series(lambda record: metrics.clean_errors([record]).get(record.position))
        return tuple(accumulate(found, lambda last, value: last if value is None else value))


@dataclass(frozen=True)
class Scene:
    """What all figures share."""

    table: ErrorTable
    tracks: tuple[Track, ...]
    styles: Mapping[str, Style]
    events: tuple[GuardEvent, ...] = ()

    @classmethod
    def of(cls, results: Results, table: ErrorTable) -> Scene:
        """One track for each method that has records."""
        seeds = {label: tuple(one.records for one in runs if one.records) for label, runs in results.by_label().items()}
        tracks = tuple(Track(label, found) for label, found in seeds.items() if found)
        rows = [(row.label, row.method) for row in table.rows]
        if not table.row_of("source"):
            rows.append((SOURCE, "source"))
        return cls(table, tracks, charts.styles(rows, table.best[-1]), results.run.events)

    @property
    def longest(self) -> Track:
        return max(self.tracks, key=lambda track: len(track.batches))

    @property
    def every(self) -> int:
        """How many batches make one point."""
        return math.ceil(len(self.longest.batches) / MOST_POINTS)


def draw(scene: Scene) -> dict[str, list[Figure]]:
    """Every section's figures; a section without any is left out of the page."""
    clean = _lines(scene, Track.clean_error)
    selected = _lines(scene, lambda track: track.series(selected_in))
    changed = _lines(scene, lambda track: track.series(lambda record: percent(record.info.get("changed"))))
    confidence = [] if scene.table.labelled else beside_source(scene)
    return {
        "errors": errors(scene),
        "running": [*running(scene), *differences(scene)],
        "clean": _over_stream(scene, clean, "clean", "Error on clean samples", CLEAN, "error, %"),
        "selection": _over_stream(
            scene, selected, "selected", "Percentage of samples selected", SELECTED, "selected, %", top=100, height=250
        ),
        "confidence": _over_stream(
            scene, confidence, "confidence", "Confidence, adapted and not", CONFIDENCE, "confidence"
        ),
        "changed": _over_stream(
            scene,
            changed,
            "disagreement",
            "Disagreement with the unadapted model",
            CHANGED,
            "predictions that differ, %",
        ),
        "threshold": thresholds(scene),
        "accuracy": accuracies(scene),
        "calibration": calibrations(scene),
    }


def errors(scene: Scene) -> list[Figure]:
    """Error by domain and method."""
    table = scene.table
    rows = [row for row in table.rows if any(value is not None for value in row.errors)]
    if not rows:
        return []
    series = [Series(row.label, (*row.errors, row.mean), scene.styles[row.label]) for row in rows]
    reading = "Each column is one domain, in the order of the stream. Each mark is one method; lower is better."
    if table.several_seeds:
        reading += " Whiskers show one standard deviation over seeds."
    heads = [*(column.words for column in table.columns), "mean"]
    svg = charts.dot_chart("errors", "Error by domain and method", heads, series, axis="error, %")
    data = {
        "domains": [*(column.title for column in table.columns), "mean"],
        "series": [{"label": one.label, "values": [v and rounded(v.mean) for v in one.values]} for one in series],
    }
    return [Figure("errors", "Error by domain", reading, svg, data, legend(series))]


def running(scene: Scene) -> list[Figure]:
    """Running error along the stream."""
    if not scene.tracks:
        return []
    window = scene.longest.window
    over = "of each batch" if window == 1 else f"over the last {window} batches"
    reading = (
        f"The error {over}. Shaded bands are domains. A method that adapts well drops after each change; one that "
        "drifts rises and stays up."
    )
    lines = _lines(scene, lambda track: track.running_error(window))
    return _over_stream(scene, lines, "running", "Error along the stream", reading, "error, %")


def differences(scene: Scene) -> list[Figure]:
    """Running error minus Source's, batch by batch."""
    source = scene.table.row_of("source")
    own = next((track for track in scene.tracks if source and track.label == source.label), None)
    if own is None:
        return []
    window = scene.longest.window
    base = own.running_error(window)

    def difference(track: Track) -> metrics.Series:
        pairs = zip(track.running_error(window), base, strict=False)
        return tuple(None if mine is None or theirs is None else mine - theirs for mine, theirs in pairs)

    others = replace(scene, tracks=tuple(track for track in scene.tracks if track is not own))
    lines = _lines(others, difference)
    return _over_stream(scene, lines, "difference", "Difference to Source", DIFFERENCE, "points", top=0.5)


def beside_source(scene: Scene) -> Lines:
    """The confidence of each method, and the unadapted model's on the same samples if it is known."""
    lines = _lines(scene, lambda track: track.series(confidence_of_predictions))
    source = scene.tracks[0].series(lambda record: record.info.get("source_confidence")) if scene.tracks else ()
    if known(source):
        lines = [Series(SOURCE, thin(source, scene.every), scene.styles[SOURCE]), *lines]
    return lines


def thresholds(scene: Scene) -> list[Figure]:
    """Mean confidence and the threshold that follows it, as in the paper's figure; one per method that has it."""
    reading = (
        "The solid line is the mean confidence of the pseudo-labels in each batch, the dashed one the threshold that "
        "follows it." + BOUNDARIES.get(scene.table.boundaries, "")
    )
    figures: list[Figure] = []
    for track in scene.tracks:
        threshold = track.series(lambda record: record.info.get("threshold"))
        if known(threshold):
            mean = thin(track.series(confidence_in), scene.every)
            lines = [
                Series("confidence", mean, replace(scene.styles[track.label], dash="", best=False)),
                Series("threshold", thin(threshold, scene.every), THRESHOLD),
            ]
            name, title = f"threshold-{len(figures)}", f"{track.label}: confidence and threshold"
            figures += _over_stream(scene, lines, name, title, reading, "probability")
    return figures


def accuracies(scene: Scene) -> list[Figure]:
    """Accuracy of the selected samples and of the rejected, one figure per method that selects."""
    reading = (
        "Filled: accuracy of the selected samples. Hollow: of the rejected. The longer the line between them, the "
        "better the selection separates right predictions from wrong ones."
    )
    figures: list[Figure] = []
    for track in scene.tracks:
        records = metrics.segments(track.records)
        parts = {part: [r for p in part.positions for r in records.get(p, ())] for part in scene.table.columns}
        splits = {part: split for part, found in parts.items() if (split := metrics.selection(found))}
        if known(split.selected_accuracy for split in splits.values()):
            name, title = f"accuracy-{len(figures)}", f"{track.label}: were the selected samples better?"
            pairs = [(part.words, split) for part, split in splits.items()]
            data = {
                "label": track.label,
                "domains": [part.title for part in splits],
                "selected": [rounded(split.selected_accuracy) for split in splits.values()],
                "rejected": [rounded(split.rejected_accuracy) for split in splits.values()],
                "percentage selected": [rounded(split.share) for split in splits.values()],
            }
            svg = charts.pair_chart(name, title, pairs, scene.styles[track.label], axis="accuracy, %")
            figures.append(Figure(name, title, reading, svg, data))
    return figures


def calibrations(scene: Scene) -> list[Figure]:
    """Reliability, one small figure per method."""
    figures: list[Figure] = []
    for track in scene.tracks:
        if bins := metrics.calibration_bins(track.records):
            each = (metrics.calibration_error(metrics.calibration_bins(records)) for records in track.seeds)
            error, name = metrics.finite_mean(each), f"calibration-{len(figures)}"
            svg = charts.reliability_chart(name, f"Reliability of {track.label}", bins, scene.styles[track.label])
            full = [(rounded(confidence / n), rounded(correct / n), n) for n, confidence, correct in bins if n]
            columns = zip(("confidence", "accuracy", "samples"), zip(*full, strict=True), strict=True)
            data = {"label": track.label, **dict(columns), "ece": error}
            figures.append(Figure(name, track.label, f"ECE {error:.1f} %", svg, data))
    return figures


def _lines(scene: Scene, read: Callable[[Track], metrics.Series]) -> Lines:
    """One line per method that has such values."""
    found = {track.label: values for track in scene.tracks if known(values := read(track))}
    return [Series(label, thin(values, scene.every), scene.styles[label]) for label, values in found.items()]


def _over_stream(
    scene: Scene, lines: Lines, name: str, title: str, reading: str, axis: str, **options: float
) -> list[Figure]:
    """A line chart over the batches, its data and its legend; none without lines."""
    if not lines:
        return []
    longest, every = scene.longest, scene.every
    if every > 1:
        reading += f" Each point is the mean of {every} batches."
    if scene.events:
        reading += " Where a vertical line is, the guard did or told something."
    events = [(event.batch / every, f"batch {event.batch}: {event.words}") for event in scene.events]
    svg = charts.line_chart(name, title, lines, _bands(scene), axis=axis, events=events, **options)
    data = {
        "steps": list(longest.batches)[::every],
        "domains": [scene.table.segments[p].words for p in longest.positions[::every]],
        "unit": " %" if axis.endswith("%") else "",
        "series": [{"label": line.label, "values": list(map(rounded, line.values))} for line in lines],
    }
    return [Figure(name, title, reading, svg, data, legend(lines))]


def _bands(scene: Scene) -> list[Band]:
    """Where each domain lies; domains still to come are as wide as the widest so far."""
    positions, every, segments = scene.longest.positions, scene.every, scene.table.segments
    starts: dict[int, int] = {}
    for index, position in enumerate(positions):
        starts.setdefault(position, index)
    edges = [*starts.values(), len(positions)]
    missing, widest = len(segments) - len(starts), max(after - before for before, after in pairwise(edges))
    if missing:
        edges[-1:] = [edges[-2] + widest * (index + 1) for index in range(missing + 1)]
    spans = zip(segments, pairwise(edges), strict=False)
    named = scene.table.labelled or len(segments) > 1  # a folder of samples is one domain without a name
    return [(segment.words if named else "", before / every, after / every) for segment, (before, after) in spans]


def legend(series: Sequence[Series[Any]]) -> tuple[tuple[str, Markup], ...]:
    """Labels and their swatches."""
    return tuple((one.label, charts.swatch(one.style)) for one in series)


def known(values: Iterable[float | None]) -> bool:
    """Whether there is anything to show."""
    return any(value is not None for value in values)


def thin(values: Sequence[float | None], every: int) -> metrics.Series:
    """Means of `every` consecutive values."""
    return tuple(metrics.finite_mean(values[start : start + every]) for start in range(0, len(values), every))


def rounded(value: float | None) -> float | None:
    """As the page stores it."""
    return value and round(value, 4)


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def confidence_in(record: Record) -> float | None:
    """As the method reports it; else the mean of its predictions."""
    return record.info.get("confidence", confidence_of_predictions(record))


def confidence_of_predictions(record: Record) -> float | None:
    """Their mean."""
    n, confidence, _ = map(sum, zip(*record.bins, strict=True)) if record.bins else (0, 0.0, 0)
    return confidence / n if n else None


def selected_in(record: Record) -> float | None:
    """In percent."""
    return None if record.selected is None else 100 * record.selected / record.n


def error_in(record: Record) -> float | None:
    return 100 * record.wrong / record.scored if record.scored else None
