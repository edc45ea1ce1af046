"""The page's figures: which data, which chart, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from ctta.report.metrics import Series, Split, running_error, third
from ctta.report.page import charts
from ctta.report.page.charts import Band, DotSeries, LineSeries, Pair, Style
from ctta.report.page.tracks import Track, known, thin
from ctta.report.tables.errors import ErrorTable, StreamPart

MOST_POINTS = 2000  # a longer line is thinned: the screen has no more
THRESHOLD = Style(8, "7 3", "diamond")  # a colour that no method has
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
class Scene:
    """What all figures share."""

    table: ErrorTable
    tracks: tuple[Track, ...]
    styles: Mapping[str, Style]

    @property
    def every(self) -> int:
        """How many batches make one point."""
        return math.ceil(max((len(track.steps) for track in self.tracks), default=1) / MOST_POINTS)

    @property
    def longest(self) -> Track:
        return max(self.tracks, key=lambda track: len(track.steps))


def errors(scene: Scene) -> Figure | None:
    """Error by domain and method."""
    table = scene.table
    rows = [row for row in table.rows if any(value is not None for value in row.errors)]
    if not rows:
        return None
    series = [DotSeries(row.label, (*row.errors, row.mean), scene.styles[row.label]) for row in rows]
    heads = [*(column.short for column in table.columns), "mean"]
    return Figure(
        name="errors",
        title="Error by domain",
        reading="Each column is one domain, in the order of the stream. Each mark is one method; lower is better."
        + (" Whiskers show one standard deviation over seeds." if any(len(row.seeds) > 1 for row in rows) else ""),
        svg=charts.dot_chart("errors", "Error by domain and method", heads, series, axis="error, %"),
        data={
            "domains": [column.title for column in table.columns],
            "series": [
                {"label": row.label, "values": [v and v.mean for v in row.errors], "mean": row.mean and row.mean.mean}
                for row in rows
            ],
        },
        legend=_legend(series),
    )


def running(scene: Scene) -> Figure | None:
    """Running error along the stream."""
    if not scene.tracks:
        return None
    window = third(len(scene.longest.steps) / len(set(scene.longest.positions)))
    over = "of each batch" if window == 1 else f"over the last {window} batches"
    return _over_stream(
        scene,
        _lines(scene, lambda track: running_error(track.errors, track.sizes, window)),
        name="running",
        title="Error along the stream",
        reading=f"The error {over}. Shaded bands are domains. "
        "A method that adapts well drops after each change; one that drifts rises and stays up.",
        axis="error, %",
        unit=" %",
    )


def clean(scene: Scene) -> Figure | None:
    """Error on clean samples along the stream, if it was measured."""
    return _over_stream(
        scene,
        _lines(scene, lambda track: track.clean),
        name="clean",
        title="Error on clean samples",
        reading="Evaluated at the end of each domain, without learning from them; a value holds until the next. A line "
        "that rises shows forgetting.",
        axis="error, %",
        unit=" %",
    )


def confidence(scene: Scene) -> Figure | None:
    """Mean confidence of all methods: what can be shown without labels."""
    return _over_stream(
        scene,
        _lines(scene, lambda track: track.confidence),
        name="confidence",
        title="Confidence along the stream",
        reading="Each method's mean confidence in each batch. High confidence does not mean high accuracy.",
        axis="confidence",
        y=(0.0, 1.0),
    )


def selection(scene: Scene) -> Figure | None:
    """Percentage of samples selected, along the stream."""
    return _over_stream(
        scene,
        _lines(scene, lambda track: track.selected),
        name="selection",
        title="Percentage of samples selected",
        reading="How much of each batch was selected to learn from.",
        axis="selected, %",
        unit=" %",
        y=(0.0, 100.0),
        height=250,
    )


def thresholds(scene: Scene) -> list[Figure]:
    """Mean confidence and the threshold that follows it, as in the paper's figure; one per method that has it."""
    figures: list[Figure] = []
    for track in scene.tracks:
        lines = [
            LineSeries("confidence", thin(track.confidence, scene.every), scene.styles[track.label]),
            LineSeries("threshold", thin(track.threshold, scene.every), THRESHOLD),
        ]
        figure = _over_stream(
            scene,
            lines if known(track.threshold) else [],
            name=f"threshold-{len(figures)}",
            title=f"{track.label}: confidence and threshold",
            reading="The solid line is the mean confidence of the pseudo-labels in each batch, the dashed one the "
            "threshold that follows it." + BOUNDARIES.get(scene.table.boundaries, BOUNDARIES["unknown"]),
            axis="probability",
            y=(0.0, 1.0),
        )
        figures += [figure] if figure else []
    return figures


def accuracies(scene: Scene) -> list[Figure]:
    """Accuracy of the selected against the rejected, one figure per method that selects."""
    figures: list[Figure] = []
    for track in scene.tracks:
        parts = {
            column: [track.splits[p] for p in column.positions if p in track.splits] for column in scene.table.columns
        }
        columns = [column for column, found in parts.items() if found]
        splits = [sum(parts[column], start=Split()) for column in columns]
        if known(split.selected_accuracy for split in splits):
            figures.append(_accuracy_figure(scene, track, columns, splits, len(figures)))
    return figures


def calibrations(scene: Scene) -> list[Figure]:
    """Reliability, one small figure per method."""
    return [
        Figure(
            name=f"calibration-{number}",
            title=track.label,
            reading=f"ECE {track.calibration_error:.1f} %",
            svg=charts.reliability_chart(
                f"calibration-{number}", f"Reliability of {track.label}", track.bins, scene.styles[track.label]
            ),
            data={"label": track.label, "bins": track.bins, "ece": track.calibration_error},
        )
        for number, track in enumerate(track for track in scene.tracks if track.bins)
    ]


def overall(track: Track) -> Split:
    """All domains together."""
    return sum(track.splits.values(), start=Split())


def _accuracy_figure(
    scene: Scene, track: Track, columns: Sequence[StreamPart], splits: Sequence[Split], number: int
) -> Figure:
    name = f"accuracy-{number}"
    style = scene.styles[track.label]
    pairs = [
        Pair(column.short, split.selected_accuracy, split.rejected_accuracy, f"{split.share:.0f}%")
        for column, split in zip(columns, splits, strict=True)
    ]
    title = f"{track.label}: were the selected samples better?"
    return Figure(
        name=name,
        title=title,
        reading="Filled: accuracy of the selected samples. Hollow: of the rejected. The longer the line between them, "
        "the better the selection separates right predictions from wrong ones.",
        svg=charts.pair_chart(name, title, pairs, style, axis="accuracy, %"),
        data={
            "label": track.label,
            "domains": [column.title for column in columns],
            "share": [split.share for split in splits],
            "selected": [split.selected_accuracy for split in splits],
            "rejected": [split.rejected_accuracy for split in splits],
        },
    )


def _lines(scene: Scene, read: Callable[[Track], Series]) -> list[LineSeries]:
    """One line per method that has such values."""
    found = ((track.label, read(track)) for track in scene.tracks)
    return [
        LineSeries(label, thin(values, scene.every), scene.styles[label]) for label, values in found if known(values)
    ]


def _over_stream(
    scene: Scene,
    lines: Sequence[LineSeries],
    *,
    name: str,
    title: str,
    reading: str,
    axis: str,
    unit: str = "",
    y: tuple[float, float] | None = None,
    height: float = 350,
) -> Figure | None:
    """A line chart over the batches, its data and its legend; none without lines."""
    if not lines:
        return None
    longest, every = scene.longest, scene.every
    if every > 1:
        reading += f" Each point is the mean of {every} batches."
    return Figure(
        name=name,
        title=title,
        reading=reading,
        svg=charts.line_chart(name, title, lines, _bands(scene), axis=axis, y=y, height=height),
        data={
            "steps": longest.steps[::every],
            "domains": [scene.table.segments[p].title.replace("_", " ") for p in longest.positions[::every]],
            "unit": unit,
            "series": [{"label": line.label, "values": line.values} for line in lines],
        },
        legend=_legend(lines),
    )


def _bands(scene: Scene) -> list[Band]:
    """Where each domain lies; domains still to come are as wide as the widest so far."""
    longest, every = scene.longest, scene.every
    starts: dict[int, int] = {}
    for index, position in enumerate(longest.positions):
        starts.setdefault(position, index)
    edges = [*starts.values(), len(longest.positions)]
    usual = max(after - before for before, after in pairwise(edges))
    segments = scene.table.segments
    whole = len(starts) == len(segments)
    if not whole:
        edges[-1] = edges[-2] + usual
        edges += [edges[-1] + usual * (index + 1) for index in range(len(segments) - len(starts))]
    names = [segment.short for segment in segments]
    return [
        Band(name, before / every, after / every) for name, before, after in zip(names, edges, edges[1:], strict=False)
    ]


def _legend(series: Sequence[LineSeries | DotSeries]) -> tuple[tuple[str, Markup], ...]:
    return tuple((one.label, charts.swatch(one.style)) for one in series)
