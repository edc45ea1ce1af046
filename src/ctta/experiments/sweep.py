"""A sweep: an experiment at every point of a grid.

    grid: {method.temperature: [0.2, 0.6, 1.0], protocol.order: [0, 1, 2]}
    over: [protocol.order]

An axis is a setting as `--set` names it, or a whole section (`methods`, `seeds`, `protocol` ...), with a list of values
that win over what the sections say. In `methods` and `seeds` a value that is not a list stands for a list of one. The
points are the product of the axes, each an ordinary experiment. The summary averages over the axes named in `over`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import hashed
from ctta.experiments import experiment as experiments
from ctta.experiments.experiment import SECTIONS, Experiment
from ctta.methods import METHODS
from ctta.records.sweep_folder import Head, heads, shown, text

LISTS = ("methods", "seeds")
FIELDED = ("data", "protocol", "model", "source", "execution", "method")  # where an axis may be a single field
LONGEST = 24  # letters of a value in the name of a folder


@dataclass(frozen=True)
class Point:
    """One point of the grid: its values along the axes, and its experiment as plain data."""

    slug: str  # the name of its folder: the same, whatever other points there are
    values: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    """A sweep as far as it can be read, and what is wrong with it."""

    axes: Mapping[str, tuple[Any, ...]]
    over: tuple[str, ...]
    points: tuple[Point, ...]
    problems: tuple[str, ...]  # each once, whatever the number of points that have it


@dataclass(frozen=True)
class Sweep:
    """Experiments by the name of their folder, and what the sweep's own folder says of them."""

    head: Head
    experiments: Mapping[str, Experiment]


def make(values: Mapping[str, Any], name: str = "sweep", command: str = "") -> Sweep:
    """From plain data; all mistakes of all points are reported together."""
    grid, named = read(values, name), str(values.get("name", name))
    if grid.problems:
        raise ConfigError("\n".join(grid.problems))
    points = {point.slug: point.values for point in grid.points}
    head = Head(named, grid.axes, grid.over, points, command)
    return Sweep(head, {point.slug: experiments.make(point.settings, named) for point in grid.points})


def read(values: Mapping[str, Any], name: str = "sweep") -> Grid:
    """The points of a grid; a mistake in one place does not hide another."""
    problems: list[str] = []
    axes = _axes(values.get("grid"), problems)
    over = _over(values.get("over", []), axes, problems)
    base = {key: value for key, value in values.items() if key not in ("grid", "over")}
    named, titles = str(values.get("name", name)), heads(axes)
    points = []
    for chosen in product(*axes.values()):
        at = dict(zip(axes, chosen, strict=True))
        settings = base
        for key in sorted(at, key=lambda key: "." in key):  # whole sections first, then fields in them
            alone = key in LISTS and not isinstance(at[key], list)
            settings = experiments.put(settings, key, [at[key]] if alone else at[key])
        said = ", ".join(f"{titles[key]} {shown(axes[key], value)}" for key, value in at.items())
        slug = "_".join(f"{titles[key]}-{_word(value)}" for key, value in at.items())
        points.append(Point(slug, at, {**settings, "name": f"{named}: {said}"}))
    for point in points:
        problems += experiments.draft(point.settings).problems
    problems += [problem for key in axes if (problem := _without_effect(key, points))]
    return Grid(axes, over, tuple(points), tuple(dict.fromkeys(problems)))


def _axes(grid: Any, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    """The axes that can be used."""
    if not isinstance(grid, Mapping) or not grid:
        problems.append(
            f"grid must be a mapping of settings and their values: grid: {{data.batch: [50, 200]}}. Got {grid!r}."
        )
        return {}
    axes = {}
    for key, values in grid.items():
        section, dot, _ = str(key).partition(".")
        accepted = FIELDED if dot else SECTIONS
        if section not in accepted:
            what = "section.field" if dot else "a section"
            problems.append(f"grid: an axis is {what}; there is no section {section!r}. {nearest(section, accepted)}")
        elif not isinstance(values, list) or not values:
            problems.append(f"grid: {key} must have a list of values, at least one. Got {values!r}.")
        else:
            texts = [text(value) for value in values]
            twice = dict.fromkeys(one for one in texts if texts.count(one) > 1)
            problems += [f"grid: {key} has {one} more than once. Each value counts once." for one in twice]
            axes[str(key)] = tuple(values)
    return axes


def _over(over: Any, axes: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    if not isinstance(over, list):
        problems.append(f"over must be a list of axes of the grid. Got {over!r}.")
        return ()
    problems += [f"over: there is no axis {key!r}. {nearest(str(key), axes)}" for key in over if key not in axes]
    return tuple(key for key in over if key in axes)


def _without_effect(key: str, points: list[Point]) -> str:
    """That an axis names a field that no method has, in words; else empty."""
    section, _, name = key.partition(".")
    if section != "method":
        return ""
    entries = [entry for point in points for entry in _listed(point.settings.get("methods"))]
    used = {entry if isinstance(entry, str) else str(entry.get("method")) for entry in entries}
    fields = {field for method in used & set(METHODS) for field in METHODS[method].config_type.fields()}
    return "" if not fields or name in fields else f"grid: no method here has a field {name!r}. {nearest(name, fields)}"


def _listed(methods: Any) -> list[Any]:
    return [entry for entry in methods if isinstance(entry, str | Mapping)] if isinstance(methods, list) else []


def _word(value: Any) -> str:
    """A value in the name of a folder; where it cannot be read from it whole, a hash tells it from others."""
    said = text(value)
    kept = "".join(letter if letter.isalnum() or letter in "+-." else "-" for letter in said)
    if kept == said and len(kept) <= LONGEST:
        return kept
    words = "-".join(part for part in kept.split("-") if part)
    return f"{words[:LONGEST].strip('-.')}-{hashed(said)[:6]}"
