"""Charts as inline SVG. Colours are CSS variables, so that one drawing serves the light and the dark page.

All text that comes from outside is escaped by `tag`. Positions are in units of the view box, not in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from markupsafe import Markup, escape

from ctta.report.metrics import Bins, Split, Value

WIDTH = 880
DASHES = ("", "8 3", "10 3 2 3", "4 2", "2 3")
MARKERS = ("circle", "square", "diamond", "up", "down")
LABEL_ROOM = 46  # units that a domain's short name takes
LONGEST = 22  # letters of a name at the end of a line

T = TypeVar("T")
Band = tuple[str, float, float]  # a domain's name, the step at which it starts, and the one before which it stops


@dataclass(frozen=True)
class Style:
    """How one series looks everywhere on the page. Colour is never the only difference: dash and marker differ too."""

    colour: int
    dash: str = ""
    marker: str = "circle"
    strong: bool = False

    @property
    def name(self) -> str:
        """Its CSS class."""
        return f"s{self.colour}{' strong' if self.strong else ''}"


@dataclass(frozen=True)
class Series(Generic[T]):
    """One value per step or column; none leaves a gap."""

    label: str
    values: Sequence[T | None]
    style: Style


Lines = Sequence[Series[float]]


@dataclass(frozen=True)
class Plot:
    """The drawing area and its scales: `x` from 0, `y` from the first tick to the last."""

    x: float
    ticks: Sequence[float]
    width: float = WIDTH
    height: float = 350
    left: float = 52
    right: float = 16
    top: float = 50
    bottom: float = 34

    def px(self, x: float) -> float:
        return self.left + x / self.x * (self.width - self.left - self.right)

    def py(self, y: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.floor - (y - low) / (high - low) * (self.floor - self.top)

    @property
    def floor(self) -> float:
        return self.height - self.bottom


def styles(methods: Sequence[tuple[str, str]]) -> dict[str, Style]:
    """A style for each (label, method). On every page Source is grey and the first DSS stands out."""
    found: dict[str, Style] = {}
    rest = 0
    for label, method in methods:
        if method == "source" and not any(style.colour == 0 for style in found.values()):
            found[label] = Style(0, "1 4", "square")
        elif method == "dss" and not any(style.strong for style in found.values()):
            found[label] = Style(1, "", "circle", strong=True)
        else:
            colour = 2 + rest % 6  # those of the style sheet
            found[label] = Style(colour, DASHES[rest % len(DASHES)], MARKERS[(rest + 2) % len(MARKERS)])
            rest += 1
    return found


# Charts


def line_chart(
    name: str, title: str, lines: Lines, bands: Sequence[Band], *, axis: str, top: float = 1.0, height: float = 350
) -> Markup:
    """Lines over the stream, with a band for each domain and a label at each line's end; `top` is at least shown."""
    steps = max(len(line.values) for line in lines)
    ticks = nice_ticks(0, max([top, *(v for line in lines for v in line.values if v is not None)]))
    room = 14 + 8.2 * min(max(len(line.label) for line in lines), LONGEST)
    plot = Plot(max(bands[-1][2], steps), ticks, right=room, height=height)
    drawn = [_line(plot, number, line) for number, line in enumerate(lines)]
    parts = [_bands(plot, bands), _y_axis(plot, axis), _x_caption(plot, "batches along the stream →"), *drawn]
    parts += [_end_labels(plot, lines), tag("line", class_="cursor", y1=plot.top, y2=plot.floor, x1=0, x2=0)]
    return _svg(name, title, plot, parts, steps=plot.x)


def dot_chart(name: str, title: str, columns: Sequence[str], series: Sequence[Series[Value]], *, axis: str) -> Markup:
    """Dots by column; the last column, a mean, stands apart."""
    ticks = nice_ticks(0, max([1.0, *(value.mean for dots in series for value in dots.values if value)]))
    plot = Plot(len(columns) + 0.5, ticks, bottom=16)
    centres = [*(index + 0.5 for index in range(len(columns) - 1)), len(columns)]
    bands = [(text, centre - 0.5, centre + 0.5) for text, centre in zip(columns, centres, strict=True)]
    parts = [_bands(plot, bands), _y_axis(plot, axis)]
    for number, dots in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * min(0.14, 0.7 / len(series))
        parts.append(_dots(plot, number, dots, columns, [plot.px(centre + shift) for centre in centres]))
    return _svg(name, title, plot, parts)


def pair_chart(name: str, title: str, pairs: Sequence[tuple[str, Split]], style: Style, *, axis: str) -> Markup:
    """Accuracy of selected (filled) and rejected (hollow) samples per column, joined; the percentage selected below."""
    values = [v for _, split in pairs for v in (split.selected_accuracy, split.rejected_accuracy) if v is not None]
    ticks = nice_ticks(min(20 * math.floor(min(values, default=0) / 20), 80), 100)  # so that a tick falls on 100
    plot = Plot(len(pairs), ticks, bottom=44)
    bands = [(short, index, index + 1) for index, (short, _) in enumerate(pairs)]
    parts = [_bands(plot, bands), _y_axis(plot, axis), _x_caption(plot, "percentage selected, below each domain")]
    step = _every(plot, bands)
    for index, (short, split) in enumerate(pairs):
        x = plot.px(index + 0.5)
        parts.append(_pair(plot, x, short, split, style))
        if index % step == 0:
            parts.append(_text(f"{split.share:.0f}%", "tick", x, plot.floor + 17))
    return _svg(name, title, plot, parts)


def reliability_chart(name: str, title: str, bins: Bins, style: Style) -> Markup:
    """Accuracy against confidence, one dot per bin, its area by the bin's samples; the diagonal is perfect."""
    plot = Plot(1, (0, 0.5, 1), width=220, height=216, left=36, right=10, top=8, bottom=38)
    full = [(n, confidence / n, correct / n) for n, confidence, correct in bins if n]
    most = max(n for n, _, _ in full)
    dots = []
    for n, confidence, accuracy in full:
        hint = tag("title", f"{n} samples: confidence {confidence:.2f}, accuracy {accuracy:.2f}")
        r = 2 + 5 * math.sqrt(n / most)
        dots.append(tag("circle", hint, cx=plot.px(confidence), cy=plot.py(accuracy), r=r))
    points = " ".join(f"{plot.px(confidence):.1f},{plot.py(accuracy):.1f}" for _, confidence, accuracy in full)
    ends = [_text(f"{tick:g}", "tick", plot.px(tick), plot.floor + 15) for tick in plot.ticks]
    caption = _text("confidence", "axis", plot.px(0.5), plot.height - 6)
    diagonal = tag("line", class_="diagonal", x1=plot.px(0), y1=plot.py(0), x2=plot.px(1), y2=plot.py(1))
    curve = tag("g", tag("polyline", points=points), *dots, class_=f"series {style.name}")
    return _svg(name, title, plot, [_y_axis(plot, ""), *ends, caption, diagonal, curve])


def swatch(style: Style) -> Markup:
    """The sample of a series in a legend."""
    line = tag("polyline", points="1,7 27,7", stroke_dasharray=style.dash or None)
    body = tag("g", line, _marker(style.marker, 14, 7, 4), class_=f"series {style.name}")
    return tag("svg", body, class_="swatch", viewBox="0 0 28 14", aria_hidden="true")


# Pieces


def tag(element: str, *content: str, **attributes: object) -> Markup:
    """An element. Values are escaped, numbers rounded, `None` left out; `text_anchor` becomes `text-anchor`."""
    written = Markup("")
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
            written += Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown)
    inner = Markup("").join(escape(part) for part in content)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(element), written, inner)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to at least `high`."""
    raw = max(high - low, 1e-9) / about
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= raw * 0.999)
    count = math.ceil((high - low) / step - 1e-6)
    return [round(low + index * step, 10) for index in range(count + 1)]


def spread_out(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The same order, at least `gap` apart, within the bounds if there is room."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    placed = [0.0] * len(positions)
    floor = low
    for index in order:
        placed[index] = floor = max(positions[index], floor)
        floor += gap
    ceiling = high
    for index in reversed(order):
        placed[index] = ceiling = min(placed[index], ceiling)
        ceiling -= gap
    return placed


def _svg(name: str, title: str, plot: Plot, parts: Sequence[Markup], steps: float | None = None) -> Markup:
    return tag(
        "svg", tag("title", title, id=f"{name}-title"), *parts,
        id=name, class_="chart", role="img", aria_labelledby=f"{name}-title",
        viewBox=f"0 0 {plot.width:g} {plot.height:g}",
        data_left=plot.left, data_right=plot.width - plot.right, data_steps=steps,
    )  # fmt: skip


def _text(text: str, class_: str, x: float, y: float, anchor: str | None = "middle") -> Markup:
    return tag("text", text, class_=class_, x=x, y=y, text_anchor=anchor)


def _every(plot: Plot, bands: Sequence[Band]) -> int:
    """1 if every band has room for its name, 2 if every second one has, and so on."""
    narrowest = min((plot.px(stop) - plot.px(start) for _, start, stop in bands), default=LABEL_ROOM)
    return math.ceil(LABEL_ROOM / narrowest)


def _bands(plot: Plot, bands: Sequence[Band]) -> Markup:
    step = _every(plot, bands)
    parts = []
    for index, (name, start, stop) in enumerate(bands):
        left, right = plot.px(start), plot.px(stop)
        if index % 2 == 0:
            size = {"width": right - left, "height": plot.floor - plot.top}
            parts.append(tag("rect", class_="band", x=left, y=plot.top, **size))
        if index % step == 0:
            parts.append(_text(name, "domain", (left + right) / 2, plot.top - 10))
    return tag("g", *parts, class_="bands")


def _y_axis(plot: Plot, axis: str) -> Markup:
    parts = []
    for tick in plot.ticks:
        y = plot.py(tick)
        parts.append(tag("line", class_="grid", x1=plot.left, x2=plot.width - plot.right, y1=y, y2=y))
        parts.append(_text(f"{tick:g}", "tick", plot.left - 8, y + 4, "end"))
    if axis:
        parts.append(_text(axis, "axis", 4, 14, None))
    return tag("g", *parts, class_="axes")


def _x_caption(plot: Plot, text: str) -> Markup:
    return _text(text, "axis", plot.left, plot.height - 6, None)


def _line(plot: Plot, number: int, line: Series[float]) -> Markup:
    """One polyline for each part without a gap."""
    parts: list[list[str]] = [[]]
    for step, value in enumerate(line.values):
        if value is None:
            parts.append([])
        else:  # it stands for its whole batch: it is drawn in the middle of it
            parts[-1].append(f"{plot.px(step + 0.5):.1f},{plot.py(value):.1f}")
    # A lone point is drawn as a line to itself: with round ends that is a dot.
    drawn = (points * (2 if len(points) == 1 else 1) for points in parts if points)
    polylines = (tag("polyline", points=" ".join(points), stroke_dasharray=line.style.dash or None) for points in drawn)
    return tag("g", *polylines, class_=f"series {line.style.name}", data_series=number)


def _end_labels(plot: Plot, lines: Lines) -> Markup:
    """Each line's name where it ends, pushed apart."""
    ends = []
    for number, line in enumerate(lines):
        if shown := [(step, value) for step, value in enumerate(line.values) if value is not None]:
            step, value = shown[-1]
            ends.append((number, line, plot.px(step + 0.5) + 10, plot.py(value)))
    heights = spread_out([y for *_, y in ends], 16, plot.top, plot.floor)
    texts = []
    for (number, line, x, _), y in zip(ends, heights, strict=True):
        label = line.label if len(line.label) <= LONGEST else line.label[: LONGEST - 1] + "…"
        texts.append(tag("text", label, class_=f"end {line.style.name}", data_series=number, x=x, y=y + 4))
    return tag("g", *texts)


def _dots(plot: Plot, number: int, dots: Series[Value], columns: Sequence[str], xs: Sequence[float]) -> Markup:
    parts = []
    for column, x, value in zip(columns, xs, dots.values, strict=True):
        if value is None:
            continue
        if value.sd is not None:
            low, high = max(value.mean - value.sd, 0), min(value.mean + value.sd, plot.ticks[-1])
            parts.append(tag("line", class_="spread", x1=x, x2=x, y1=plot.py(low), y2=plot.py(high)))
        hint = tag("title", f"{dots.label}, {column}: {value} %")
        parts.append(tag("g", hint, _marker(dots.style.marker, x, plot.py(value.mean), 4.5), class_="dot"))
    return tag("g", *parts, class_=f"series {dots.style.name}", data_series=number)


def _pair(plot: Plot, x: float, short: str, split: Split, style: Style) -> Markup:
    accuracies = {"selected": split.selected_accuracy, "rejected": split.rejected_accuracy}
    found = {word: (value, plot.py(value)) for word, value in accuracies.items() if value is not None}
    words = ", of ".join(f"{word} {value:.1f} %" for word, (value, _) in found.items())
    parts = [tag("title", f"{short}: accuracy of {words}")]
    if len(found) == 2:
        parts.append(tag("line", class_="joint", x1=x, x2=x, y1=found["selected"][1], y2=found["rejected"][1]))
    for word, class_, r in (("rejected", "hollow", 5.5), ("selected", "filled", 6.0)):
        if word in found:
            parts.append(tag("circle", class_=class_, cx=x, cy=found[word][1], r=r))
    return tag("g", *parts, class_=f"pair {style.name}")


def _marker(marker: str, x: float, y: float, r: float) -> Markup:
    if marker == "circle":
        return tag("circle", cx=x, cy=y, r=r)
    corners = {
        "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
        "diamond": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
        "up": [(0, -1.15), (1.1, 0.85), (-1.1, 0.85)],
        "down": [(0, 1.15), (1.1, -0.85), (-1.1, -0.85)],
    }[marker]
    return tag("polygon", points=" ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners))
