"""The page's figures: which data, which chart, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from ctta.report.metrics import Split, Value, running_error, third
from ctta.report.page import charts
from ctta.report.page.charts import Band, Dot, Dots, Line, Pair, Style
from ctta.report.page.tracks import Track, known, thin
from ctta.report.tables.errors import Column, Table

MOST_POINTS = 2000  # a longer line is thinned: the screen has no more
THRESHOLD = Style(8, "7 3", "diamond")  # a colour that no method has


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    label: str
    swatch: Markup


@dataclass(frozen=True)
class Figure:
    """A chart with its words and its data."""

    name: str
    title: str
    reading: str  # how to read it
    svg: Markup
    data: Mapping[str, Any]
    legend: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Scene:
    """What all figures share."""

    table: Table
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
    """Error by domain and label."""
    table = scene.table
    rows = [row for row in table.rows if any(value is not None for value in row.errors)]
    if not rows:
        return None
    series = [Dots(row.label, [_dot(v) for v in (*row.errors, row.mean)], scene.styles[row.label]) for row in rows]
    heads = [*(column.short for column in table.columns), "mean"]
    return Figure(
        name="errors",
        title="Error by domain",
        reading="Each column is one kind of damage, in the order the stream brings it. Each mark is one method; "
        "lower is better."
        + (" Whiskers show one standard deviation over seeds." if any(len(row.seeds) > 1 for row in rows) else ""),
        svg=charts.dot_chart("errors", "Error by domain and method", heads, series, axis="error, %"),
        data={
            "domains": [column.title for column in table.columns],
            "series": [
                {"label": row.label, "values": [v and v.mean for v in row.errors], "mean": row.mean and row.mean.mean}
                for row in rows
            ],
        },
        legend=_legend([(row.label, scene.styles[row.label]) for row in rows]),
    )


def running(scene: Scene) -> Figure | None:
    """Running error along the stream."""
    tracks = [track for track in scene.tracks if known(track.errors)]
    if not tracks:
        return None
    window = _window(scene)
    over = "of each batch" if window == 1 else f"over the last {window} batches"
    lines = [
        Line(t.label, thin(running_error(t.errors, t.sizes, window), scene.every), scene.styles[t.label])
        for t in tracks
    ]
    return _over_stream(
        scene,
        lines,
        name="running",
        title="Error along the stream",
        reading=f"The error {over}, as the stream goes by. Shaded bands are domains. "
        "A method that adapts well drops after each change; one that drifts climbs and stays up.",
        axis="error, %",
        unit=" %",
    )


def clean(scene: Scene) -> Figure | None:
    """Error on clean samples along the stream, where it was measured."""
    tracks = [track for track in scene.tracks if known(track.clean)]
    if not tracks:
        return None
    return _over_stream(
        scene,
        [Line(t.label, thin(t.clean, scene.every), scene.styles[t.label]) for t in tracks],
        name="clean",
        title="Error on clean samples",
        reading="Asked where a domain ends, without learning from them; a value stands until the next. A line that "
        "climbs forgets what the model knew.",
        axis="error, %",
        unit=" %",
    )


def confidence(scene: Scene) -> Figure | None:
    """Mean confidence of all methods: what is left to see without labels."""
    tracks = [track for track in scene.tracks if known(track.confidence)]
    if not tracks:
        return None
    lines = [Line(t.label, thin(t.confidence, scene.every), scene.styles[t.label]) for t in tracks]
    return _over_stream(
        scene,
        lines,
        name="confidence",
        title="Confidence along the stream",
        reading="Each method's mean confidence in each batch. High is not the same as right.",
        axis="confidence",
        y=(0.0, 1.0),
    )


def thresholds(scene: Scene) -> list[Figure]:
    """The paper's figure, one a label that has a threshold: mean confidence and the threshold that follows it."""
    figures: list[Figure] = []
    for track in scene.tracks:
        if known(track.threshold):
            lines = [
                Line("confidence", thin(track.confidence, scene.every), scene.styles[track.label]),
                Line("threshold", thin(track.threshold, scene.every), THRESHOLD),
            ]
            figures.append(
                _over_stream(
                    scene,
                    lines,
                    name=f"threshold-{len(figures)}",
                    title=f"{track.label}: confidence and threshold",
                    reading="The solid line is the mean confidence of the pseudo-labels in each batch, the dashed "
                    "one the threshold that follows it." + _told(scene.table),
                    axis="probability",
                    y=(0.0, 1.0),
                )
            )
    return figures


def selection(scene: Scene) -> Figure | None:
    """Share of samples selected, along the stream."""
    tracks = [track for track in scene.tracks if known(track.selected)]
    if not tracks:
        return None
    lines = [Line(t.label, thin(t.selected, scene.every), scene.styles[t.label]) for t in tracks]
    return _over_stream(
        scene,
        lines,
        name="selection",
        title="Share of samples selected",
        reading="How much of each batch was trusted enough to learn from.",
        axis="selected, %",
        unit=" %",
        y=(0.0, 100.0),
        height=250,
    )


def accuracies(scene: Scene) -> list[Figure]:
    """Accuracy of the selected against the rejected, one figure a label that selects."""
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
    """Reliability, one small figure a label."""
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
    scene: Scene, track: Track, columns: Sequence[Column], splits: Sequence[Split], number: int
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
        "the better the selection tells good guesses from bad.",
        svg=charts.pair_chart(name, title, pairs, style, axis="accuracy, %"),
        data={
            "label": track.label,
            "domains": [column.title for column in columns],
            "share": [split.share for split in splits],
            "selected": [split.selected_accuracy for split in splits],
            "rejected": [split.rejected_accuracy for split in splits],
        },
    )


def _over_stream(
    scene: Scene,
    lines: Sequence[Line],
    *,
    name: str,
    title: str,
    reading: str,
    axis: str,
    unit: str = "",
    y: tuple[float, float] | None = None,
    height: float = 350,
) -> Figure:
    """A line chart over the batches, its data and its legend."""
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
            "domains": [scene.table.stretches[p].title.replace("_", " ") for p in longest.positions[::every]],
            "unit": unit,
            "series": [{"label": line.label, "values": line.values} for line in lines],
        },
        legend=_legend([(line.label, line.style) for line in lines]),
    )


def _bands(scene: Scene) -> list[Band]:
    """Where each domain lies; domains still to come get the room of those that went by."""
    longest, every = scene.longest, scene.every
    starts: dict[int, int] = {}
    for index, position in enumerate(longest.positions):
        starts.setdefault(position, index)
    edges = [*starts.values(), len(longest.positions)]
    usual = max(after - before for before, after in pairwise(edges))
    stretches = scene.table.stretches
    whole = len(starts) == len(stretches)
    if not whole:
        edges[-1] = edges[-2] + usual
        edges += [edges[-1] + usual * (index + 1) for index in range(len(stretches) - len(starts))]
    names = [stretch.short for stretch in stretches]
    return [
        Band(name, before / every, after / every) for name, before, after in zip(names, edges, edges[1:], strict=False)
    ]


def _window(scene: Scene) -> int:
    """A third of a domain."""
    return third(len(scene.longest.steps) / len(set(scene.longest.positions)))


def _told(table: Table) -> str:
    if table.boundaries == "known":
        return " It is told where a domain starts and steps back there, half way to chance."
    if table.boundaries == "detected":
        return " Where it detects a new domain it steps back, half way to chance."
    return " It is not told where a domain starts."


def _legend(entries: Sequence[tuple[str, Style]]) -> tuple[Key, ...]:
    return tuple(Key(label, charts.swatch(style)) for label, style in entries)


def _dot(value: Value | None) -> Dot:
    return Dot(None) if value is None else Dot(value.mean, value.sd)
