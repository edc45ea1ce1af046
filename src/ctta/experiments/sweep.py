"""A sweep: an experiment at every point of a grid.

    grid: {method.temperature: [0.2, 0.6, 1.0], protocol.order: [0, 1, 2]}
    average_over: [protocol.order]

An axis is a setting as `--set` names it, or a whole section (`methods`, `seeds`, `protocol` ...), with a list of values
that replace what the sections have. In `methods` and `seeds`, a value that is not a list stands for a list of one. The
points are the product of the axes, each an ordinary experiment. The summary averages over the axes in `average_over`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import hashed, short_name
from ctta.base.limits import GRID_POINTS, VALUE_LETTERS
from ctta.base.text import quoted, shorten
from ctta.experiments import experiment as experiments
from ctta.experiments.experiment import Draft, Experiment
from ctta.experiments.sections import put, without_effect
from ctta.records.sweep_folder import Head, heads, shown, text

LISTS = ("methods", "seeds")
SECTIONS = ("data", "protocol", "model", "source", *LISTS, "execution")  # an axis may be one of these
WITH_FIELDS = ("data", "protocol", "model", "source", "execution", "method")  # or a field of one of these
LONGEST = 24  # letters of a value in the name of a folder


@dataclass(frozen=True)
class Sweep:
    """The head of the sweep's folder, the experiments of its points, and what is wrong with them."""

    head: Head
    drafts: Mapping[str, Draft]  # by the name of their folder, which does not depend on the other points
    problems: tuple[str, ...]  # each once, however many points have it

    @property
    def experiments(self) -> dict[str, Experiment]:
        return {slug: draft.experiment for slug, draft in self.drafts.items()}


def make(values: Mapping[str, Any], name: str = "sweep", command: str = "") -> Sweep:
    """Check plain data; all mistakes of all points are reported together."""
    read = draft(values, name, command)
    if read.problems:
        raise ConfigError("\n".join(read.problems))
    return read


def draft(values: Mapping[str, Any], name: str = "sweep", command: str = "") -> Sweep:
    """Read the points of a grid; a mistake in one place does not hide another."""
    problems: list[str] = []
    axes = _axes(values.get("grid"), problems)
    average_over = values.get("average_over", [])
    if not isinstance(average_over, list):
        problems.append(f"average_over must be a list of axes of the grid. Got {quoted(average_over)}.")
        average_over = []
    unknown = [key for key in average_over if key not in list(axes)]
    problems += [f"average_over: no axis is called {quoted(key)}. {nearest(key, axes)}" for key in unknown]
    base = {key: value for key, value in values.items() if key not in ("grid", "average_over")}
    if "name" in base:
        problems += [f"name: {problem}" for problem in experiments.name_problems(base["name"], folder=True)]
    named, titles = str(base.pop("name", name)), heads(axes)
    points, settings, drafts = {}, [], {}
    for chosen in product(*axes.values()):
        at = dict(zip(axes, chosen, strict=True))
        title = ", ".join(f"{titles[key]} {shown(axes[key], value)}" for key, value in at.items())
        slug = short_name("_".join(f"{titles[key]}-{_word(value)}" for key, value in at.items()))
        point = base
        for key in sorted(at, key=lambda key: "." in key):  # whole sections first, then fields in them
            single = key in LISTS and not isinstance(at[key], list)
            point = put(point, key, [at[key]] if single else at[key])
        points[slug], drafts[slug] = at, experiments.draft(point, f"{named}: {title}")
        settings.append(point)
        problems += drafts[slug].problems
    found = [without_effect(key, settings) for key in axes]
    problems += [f"grid: {problem}" for problem in found if problem]
    problems += _same(drafts) if not problems else []
    head = Head(named, axes, tuple(average_over), points, command)
    return Sweep(head, drafts, tuple(dict.fromkeys(problems)))


def _axes(grid: Any, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    """Return the axes that are valid."""
    if not isinstance(grid, Mapping) or not grid:
        problems.append(
            f"grid must be a mapping of settings and their values: grid: {{data.batch: [50, 200]}}. Got {quoted(grid)}."
        )
        return {}
    axes = {}
    for key, values in grid.items():
        section, dot, _ = str(key).partition(".")
        accepted = WITH_FIELDS if dot else SECTIONS
        if section not in accepted:
            what = "section.field" if dot else "a section"
            problems.append(
                f"grid: an axis is {what}; there is no section {quoted(section)}. {nearest(section, accepted)}"
            )
        elif not isinstance(values, list) or not values:
            problems.append(f"grid: {key} must have a list of values, at least one. Got {quoted(values)}.")
        else:
            counts = Counter(text(value) for value in values)
            twice = [shorten(one, VALUE_LETTERS) for one, count in counts.items() if count > 1]
            problems += [f"grid: {key} has {one} more than once. Each value counts once." for one in twice]
            axes[str(key)] = tuple(values)
    if (points := prod(map(len, axes.values()))) > GRID_POINTS:
        problems.append(f"grid: {points:,} points; {GRID_POINTS:,} is the limit. Give fewer axes or values.")
        return {}
    return axes


def _same(drafts: Mapping[str, Draft]) -> list[str]:
    """Report points that are the same experiment because an axis has no effect there."""
    seen: dict[str, str] = {}
    for slug, draft in drafts.items():
        other = seen.setdefault(repr(replace(draft.experiment, name="")), slug)
        if other != slug:
            return [
                f"grid: {quoted(other)} and {quoted(slug)} are the same experiment: an axis has no effect there, such "
                "as the field of a method that is not among the methods. Leave it out, or make two sweeps."
            ]
    return []


def _word(value: Any) -> str:
    """Shorten a value for the name of a folder; a hash is added if the name does not show the whole value."""
    said = text(value)
    kept = "".join(letter if letter.isalnum() or letter in "+-." else "-" for letter in said)
    if kept == said and len(kept) <= LONGEST:
        return kept
    words = "-".join(part for part in kept.split("-") if part)
    return f"{words[:LONGEST].strip('-.')}-{hashed(said)[:6]}"
