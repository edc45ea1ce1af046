"""Charts as inline SVG. Colours are CSS variables, so that one drawing serves the light and the dark page.

All text that comes from outside is escaped by `tag`. Positions are in units of the view box, not in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Generic, TypeVar
from zlib import crc32

from markupsafe import Markup, escape

from ctta.report.metrics import Bins, Split, Value

WIDTH = 880
DASHES = ("", "8 3", "10 3 2 3", "4 2", "2 3")
MARKERS = ("circle", "square", "diamond", "up", "down")
LOOKS = {  # colour, dash and marker of each method, on every page; relatives of a method share its colour
    "source": (0, "1 4", "square"),
    "dss": (1, "", "circle"),
    "sift": (1, "8 3", "diamond"),
    "bn_adapt": (2, "", "diamond"),
    "tent": (3, "8 3", "up"),
    "adacontrast": (3, "2 3", "square"),
    "cotta": (4, "10 3 2 3", "down"),
    "rmt": (4, "", "square"),
    "test_aug": (5, "4 2", "square"),
    "conjugate_pl": (6, "2 3", "circle"),
    "lame": (6, "", "down"),
    "sar": (7, "", "up"),
    "shot": (7, "4 2", "diamond"),
    "eta": (9, "8 3", "diamond"),
    "eata": (9, "4 2", "square"),
    "rdumb": (9, "10 3 2 3", "up"),
    "deyo": (9, "2 3", "down"),
    "roid": (10, "", "down"),
    "cmf": (10, "8 3", "up"),
    "memo": (5, "", "diamond"),
    "ttt": (2, "4 2", "down"),
    "ttt_mae": (2, "8 3", "square"),
    "vdp": (6, "10 3 2 3", "square"),
    "rotta": (4, "2 3", "up"),
}
COLOURS = (2, 3, 4, 5, 6, 7, 9, 10)  # of the style sheet, for rows that are not a method as it is
OTHERS = [(colour, DASHES[n % 5], marker) for n, (marker, colour) in enumerate(product(MARKERS, COLOURS))]
LONGEST = 24  # letters of a name that are shown
LETTER = 8.2  # units that a letter takes, on a phone
LINE = 16  # units that a line of text takes
SLANT = 38  # degrees, of names that are wider than their columns

T = TypeVar("T")
Band = tuple[str, float, float]  # a domain's name, the step at which it starts, and the one before which it stops


@dataclass(frozen=True)
class Style:
    """How one series looks everywhere on the page. Colour is never the only difference: dash and marker differ too."""

    colour: int
    dash: str = ""
    marker: str = "circle"
    best: bool = False  # it has the lowest mean error, and is bold

    @property
    def name(self) -> str:
        """Its CSS class."""
        return f"s{self.colour}{' best' if self.best else ''}"


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
    slanted: bool = False  # whether the names of columns are

    def px(self, x: float) -> float:
        return self.left + x / self.x * (self.width - self.left - self.right)

    def py(self, y: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.floor - (y - low) / (high - low) * (self.floor - self.top)

    @property
    def floor(self) -> float:
        return self.height - self.bottom


def styles(rows: Sequence[tuple[str, str]], best: Collection[str] = ()) -> dict[str, Style]:
    """A style for each (label, method), whatever the order: that of the method if the label is its name.

    Other labels have one by their letters; on a page where that is taken, the next one.
    """
    looks = {label: LOOKS[method] for label, method in rows if method in LOOKS and _plain(label) == _plain(method)}
    for label, _ in sorted(rows):
        if label not in looks:
            start, used = crc32(label.encode()) % len(OTHERS), list(looks.values())
            turned = [*OTHERS[start:], *OTHERS[:start]]
            looks[label] = min(turned, key=lambda look: (look in used, look[0] in [colour for colour, *_ in used]))
    return {label: Style(*looks[label], best=label in best) for label, _ in rows}


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


# Charts


def line_chart(
    name: str,
    title: str,
    lines: Lines,
    bands: Sequence[Band],
    *,
    axis: str,
    top: float = 1.0,
    height: float = 350,
    events: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Lines over the stream, with a band for each domain and a label at each line's end; 0 and `top` are shown.

    The script of the page zooms by moving the view box of the inner drawing, so `data-` attributes have the scales.
    """
    values = [value for line in lines for value in line.values if value is not None]
    ticks = nice_ticks(min([0.0, *values]), max([top, *values]))
    room = 22 + LETTER * min(max(len(line.label) for line in lines), LONGEST)
    steps = max(bands[-1][2], *(len(line.values) for line in lines))
    plot = _headed(Plot(steps, ticks, right=room, height=height), bands)
    inner = [_shades(plot, bands), *(_event(plot, *event) for event in events)]
    if ticks[0] < 0:
        inner.append(tag("line", class_="zero", x1=plot.left, x2=plot.px(steps), y1=plot.py(0), y2=plot.py(0)))
    inner += [_line(plot, number, line) for number, line in enumerate(lines)]
    wide, high = plot.px(steps) - plot.left, plot.floor - plot.top
    box = f"{plot.left:g} {plot.top:g} {wide:g} {high:g}"
    size = {"x": plot.left, "y": plot.top, "width": wide, "height": high}
    area = tag("svg", *inner, class_="area", viewBox=box, preserveAspectRatio="none", **size)
    parts = [_y_axis(plot, axis), area, _names(plot, bands), _x_caption(plot, "batches along the stream →")]
    parts += [_end_labels(plot, lines), tag("line", class_="cursor", y1=plot.top, y2=plot.floor, x1=0, x2=0)]
    return _svg(name, title, plot, parts, steps=steps, low=ticks[0], high=ticks[-1])


def dot_chart(
    name: str, title: str, columns: Sequence[str], series: Sequence[Series[Value]], *, axis: str, apart: bool = True
) -> Markup:
    """Dots by column; the last column stands apart if it is a mean, else lines join the dots."""
    values = [value.mean + (value.sd or 0.0) for dots in series for value in dots.values if value]
    centres = [index + 0.5 for index in range(len(columns))]
    if apart:
        centres[-1] += 0.5
    bands = [(text, centre - 0.5, centre + 0.5) for text, centre in zip(columns, centres, strict=True)]
    plot = _headed(Plot(len(columns) + 0.5 * apart, nice_ticks(0, max([1.0, *values])), right=62, bottom=16), bands)
    parts = [_shades(plot, bands), _y_axis(plot, axis), _names(plot, bands)]
    for number, dots in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * min(0.14, 0.7 / len(series)) * (1.0 if apart else 0.3)
        xs = [plot.px(centre + shift) for centre in centres]
        parts.append(_dots(plot, number, dots, columns, xs, joined=not apart))
    return _svg(name, title, plot, parts)


def pair_chart(name: str, title: str, pairs: Sequence[tuple[str, Split]], style: Style, *, axis: str) -> Markup:
    """Accuracy of selected (filled) and rejected (hollow) samples per column, joined; the percentage selected below."""
    values = [v for _, split in pairs for v in (split.selected_accuracy, split.rejected_accuracy) if v is not None]
    ticks = nice_ticks(min(20 * math.floor(min(values, default=0) / 20), 80), 100)  # so that a tick falls on 100
    bands = [(domain, index, index + 1) for index, (domain, _) in enumerate(pairs)]
    plot = _headed(Plot(len(pairs), ticks, right=62, bottom=44), bands)
    parts = [_shades(plot, bands), _y_axis(plot, axis), _names(plot, bands)]
    parts.append(_x_caption(plot, "percentage selected, below each domain"))
    step = _every(plot, bands, 34)
    for index, (domain, split) in enumerate(pairs):
        x = plot.px(index + 0.5)
        parts.append(_pair(plot, x, domain, split, style))
        if index % step == 0:
            parts.append(_text(f"{split.share:.0f}%", "tick", x, plot.floor + 17))
    return _svg(name, title, plot, parts)


def heat_chart(
    name: str,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    scale: tuple[float, float],
) -> Markup:
    """A field per row and column, its colour stronger if its value is higher; the lowest is bold and framed.

    If all are equal, none is.
    """
    found = [f"{value:.1f}" for row in values for value in row if value is not None]
    lowest = min(found, key=float) if len(set(found)) > 1 else None
    low, high = scale
    left = 20 + LETTER * min(max(map(len, rows)), LONGEST)
    bands = [(text, index, index + 1) for index, text in enumerate(columns)]
    plot = _headed(Plot(len(columns), (0, 1), left=left, right=62, top=26, bottom=6, height=32 + 38 * len(rows)), bands)
    parts = [_names(plot, bands)]
    for number, (text, row) in enumerate(zip(rows, values, strict=True)):
        y = plot.top + 38 * number
        parts.append(_text(_short(text), "domain", left - 10, y + 23, "end"))
        for index, value in enumerate(row):
            heat = 0.0 if value is None else (value - low) / ((high - low) or 1.0)
            shown = "–" if value is None else f"{value:.1f}"
            best = " best" if shown == lowest else ""
            box = {"x": plot.px(index) + 1.0, "y": y + 1.0, "width": plot.px(1) - plot.px(0) - 2.0, "height": 36}
            parts.append(tag("rect", class_=f"field{best}", style=f"--heat: {heat:.2f}", **box))
            parts.append(_text(shown, f"domain{best}", plot.px(index + 0.5), y + 24))
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
    """Round numbers from at most `low` to at least `high`; `low` itself if it is positive."""
    raw = max(high - low, 1e-9) / about
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= raw * 0.999)
    low = step * math.floor(low / step + 1e-6) if low < 0 else low
    count = math.ceil((high - low) / step - 1e-6)
    return [round(low + index * step, 10) for index in range(count + 1)]


def spread_out(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The same order, at least `gap` apart (less if there is no room), each as near to where it was as that allows."""
    count = len(positions)
    gap = min(gap, (high - low) / max(count - 1, 1))
    order = sorted(range(count), key=lambda index: positions[index])
    groups: list[tuple[float, int]] = []  # of neighbours that touch: their mean, without the gaps, and their number
    for rank, index in enumerate(order):
        mean, size = positions[index] - rank * gap, 1
        while groups and groups[-1][0] >= mean:
            before, others = groups.pop()
            mean, size = (before * others + mean * size) / (others + size), others + size
        groups.append((mean, size))
    starts = [min(max(mean, low), high - (count - 1) * gap) for mean, size in groups for _ in range(size)]
    placed = [0.0] * count
    for rank, index in enumerate(order):
        placed[index] = starts[rank] + rank * gap
    return placed


def _svg(name: str, title: str, plot: Plot, parts: Sequence[Markup], **scales: float) -> Markup:
    edges = {"left": plot.left, "right": plot.width - plot.right, "top": plot.top, "floor": plot.floor, **scales}
    return tag(
        "svg", tag("title", title, id=f"{name}-title"), *parts,
        id=name, class_="chart", role="img", aria_labelledby=f"{name}-title",
        viewBox=f"0 0 {plot.width:g} {plot.height:g}", **{f"data_{edge}": value for edge, value in edges.items()},
    )  # fmt: skip


def _headed(plot: Plot, bands: Sequence[Band]) -> Plot:
    """The plot with room for the names above it, slanted if one is wider than its column."""
    widths = [LETTER * len(_short(name)) for name, *_ in bands]
    if max(widths) <= min(plot.px(stop) - plot.px(start) for _, start, stop in bands):
        return plot
    more = round(max(widths) * math.sin(math.radians(SLANT)))
    right = max(plot.right, round(widths[-1] * math.cos(math.radians(SLANT))))
    return replace(plot, slanted=True, top=plot.top + more - 20, height=plot.height + more - 20, right=right)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _text(text: str, class_: str, x: float, y: float, anchor: str | None = "middle") -> Markup:
    return tag("text", text, class_=class_, x=x, y=y, text_anchor=anchor)


def _every(plot: Plot, bands: Sequence[Band], room: float) -> int:
    """1 if every band has so much room, 2 if every second one has, and so on."""
    return math.ceil(room / min(plot.px(stop) - plot.px(start) for _, start, stop in bands))


def _shades(plot: Plot, bands: Sequence[Band]) -> Markup:
    high = plot.floor - plot.top
    spans = [(plot.px(start), plot.px(stop)) for _, start, stop in bands[::2]]
    return tag("g", *(tag("rect", class_="band", x=x, y=plot.top, width=end - x, height=high) for x, end in spans))


def _names(plot: Plot, bands: Sequence[Band]) -> Markup:
    """Names of columns, as many as there is room for."""
    longest = min(max(len(name) for name, *_ in bands), LONGEST)
    texts, y = [], plot.top - 10
    for name, start, stop in bands[:: _every(plot, bands, LINE if plot.slanted else max(LINE, longest * LETTER))]:
        x = plot.px((start + stop) / 2)
        turn = {"transform": f"rotate(-{SLANT} {x:.1f} {y:.1f})"} if plot.slanted else {"text_anchor": "middle"}
        texts.append(tag("text", _short(name), class_="domain", x=x, y=y, data_from=start, data_to=stop, **turn))
    return tag("g", *texts, class_="names")


def _event(plot: Plot, step: float, words: str) -> Markup:
    x = plot.px(step + 0.5)
    return tag("line", tag("title", words), class_="event", x1=x, x2=x, y1=plot.top, y2=plot.floor)


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
    """Each line's name where it ends; of names that would touch, a thin line leads back to where they belong."""
    ends: dict[int, list[tuple[int, Series[float], float]]] = {}  # by the last step
    for number, line in enumerate(lines):
        if shown := [(step, value) for step, value in enumerate(line.values) if value is not None]:
            step, value = shown[-1]
            ends.setdefault(step, []).append((number, line, plot.py(value)))
    parts = []
    for step, group in ends.items():
        x = plot.px(step + 0.5)
        for (number, line, at), y in zip(
            group, spread_out([at for *_, at in group], LINE, plot.top, plot.floor), strict=True
        ):
            kind = {"data_series": number}
            points = f"{x + 3:.1f},{at:.1f} {x + 14:.1f},{y:.1f}"
            parts.append(tag("polyline", class_=f"leader {line.style.name}", points=points, **kind))
            parts.append(tag("text", _short(line.label), class_=f"end {line.style.name}", x=x + 17, y=y + 4, **kind))
    return tag("g", *parts, class_="ends")


def _dots(
    plot: Plot, number: int, dots: Series[Value], columns: Sequence[str], xs: Sequence[float], joined: bool
) -> Markup:
    points = [f"{x:.1f},{plot.py(v.mean):.1f}" for x, v in zip(xs, dots.values, strict=True) if v and joined]
    parts = [tag("polyline", points=" ".join(points), stroke_dasharray=dots.style.dash or None)] if points else []
    for column, x, value in zip(columns, xs, dots.values, strict=True):
        if value is None:
            continue
        if value.sd is not None:
            low, high = plot.py(max(value.mean - value.sd, 0)), plot.py(value.mean + value.sd)
            parts.append(tag("line", class_="spread", x1=x, x2=x, y1=low, y2=high))
        hint = tag("title", f"{dots.label}, {column}: {value} %")
        parts.append(tag("g", hint, _marker(dots.style.marker, x, plot.py(value.mean), 4.5), class_="dot"))
    return tag("g", *parts, class_=f"series {dots.style.name}", data_series=number, data_mark=dots.style.marker)


def _pair(plot: Plot, x: float, domain: str, split: Split, style: Style) -> Markup:
    accuracies = {"selected": split.selected_accuracy, "rejected": split.rejected_accuracy}
    found = {word: (value, plot.py(value)) for word, value in accuracies.items() if value is not None}
    words = ", of ".join(f"{word} {value:.1f} %" for word, (value, _) in found.items())
    parts = [tag("title", f"{domain}: accuracy of {words}")]
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
