"""Puts the page together: gathers what the template shows and fills it in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ctta.records.run_folder import Cell, Run, RunFolder
from ctta.report.page import charts, figures, pictures, tracks
from ctta.report.page.figures import Figure, Scene
from ctta.report.tables import errors as tables
from ctta.report.tables import paper as comparison
from ctta.report.tables import summary
from ctta.report.tables.errors import Row, Table

NEARLY_ALL = 95  # percent; a selection that takes more hardly selects, and the page says so


@dataclass(frozen=True)
class Headline:
    """The run's result in one sentence, and what else belongs to it."""

    text: str
    more: str = ""


@dataclass(frozen=True)
class Gallery:
    """Images of each domain, answered by one label."""

    label: str
    strips: list[pictures.Strip]


@dataclass(frozen=True)
class Settings:
    """The settings of one label."""

    label: str
    preset: str
    seeds: str
    config: list[tuple[str, str]]


def render(folder: RunFolder) -> str:
    """One self-contained page."""
    run, table = folder.run(), tables.build(folder)
    second = summary.build(folder, table)
    look = charts.styles([(row.label, row.method) for row in table.rows])
    scene = Scene(table, tuple(tracks.load(folder)), look)
    shown = _figures(scene)
    context = {
        "run": run,
        "table": table,
        "styles": look,
        "swatch": charts.swatch,
        "headline": headline(table),
        "bars": _bars(table),
        "facts": _facts(run, table),
        "each": pictures.EACH,
        "gallery": _gallery(folder, run, table),
        "figures": shown,
        "verdicts": _verdicts(scene),
        "beside": _beside(folder),
        "summary": second,
        "summary_columns": summary.columns(second) if table.labelled else [],
        "heat": _heat(table),
        "cost": _cost(table),
        "dagger": tables.DAGGER,
        "needs": {row.label: tables.needs(row.traits) for row in table.rows if row.traits},
        "settings": _settings(run.cells),
        "environment": _pairs(run.environment),
        "experiment": json.dumps(run.experiment, indent=2, ensure_ascii=False),
        "has_dss": any(row.method == "dss" for row in table.rows),
        "several_seeds": any(len(row.seeds) > 1 for row in table.rows),
        "data": {"table": tables.to_json(table), "metrics": summary.to_json(second), "charts": _data(shown)},
        "style": _inlined("style.css"),
        "script": _inlined("page.js"),
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_text("template.html.jinja")).render(context)


def headline(table: Table) -> Headline:
    """Computed from the means alone; a method that is not complete or not valid is not spoken of."""
    means = {row.label: row.mean.mean for row in table.rows if row.mean and not row.problems}
    source, dss = table.row_of("source"), table.row_of("dss")
    if not means:
        words = "No method is complete yet." if table.labelled else "This stream has no labels: what the methods saw."
        return Headline(words)
    lowest = min(means, key=lambda label: means[label])
    if source is None or dss is None or not {source.label, dss.label} <= means.keys():
        return Headline(f"{lowest} errs on {_percent(means[lowest])} of {table.samples}.", _of_how_many(means))
    before, after = means[source.label], means[dss.label]
    more = "" if lowest == dss.label else f" The lowest error in this run is {lowest}’s, {_percent(means[lowest])}."
    return Headline(
        f"{source.label} errs on {_percent(before)} of {table.samples}; {dss.label} on {_percent(after)}.",
        _comparison(before, after) + more,
    )


def _comparison(before: float, after: float) -> str:
    if after < before:
        return f"That is {100 * (1 - after / before):.0f}\u202f% fewer mistakes, learned without a single label."
    return "On this stream, adapting did not help."


def _of_how_many(means: Mapping[str, float]) -> str:
    return f"The lowest mean error of {len(means)} complete methods." if len(means) > 1 else ""


def _percent(value: float) -> str:
    return f"{value:.1f}\u202f%"


def _bars(table: Table) -> list[tuple[Row, float]]:
    """Complete, valid rows with the length of their bar, in percent of the longest."""
    means = [(row, row.mean.mean) for row in table.rows if row.mean is not None and not row.problems]
    longest = max((mean for _, mean in means), default=0.0) or 1.0
    return [(row, 100 * mean / longest) for row, mean in means]


def _facts(run: Run, table: Table) -> list[tuple[str, str]]:
    facts = [("Stream", table.dataset or run.name), ("Domains", str(len(table.columns)))]
    if table.protocol:
        facts.append(("Protocol", table.protocol))
    if not table.by_stretch:
        facts.append(("Stretches", str(len(table.stretches))))
    if table.images is not None:
        unit = "domain" if table.by_stretch else "stretch"
        facts.append((f"{table.samples.capitalize()} a {unit}", f"{table.images:,}"))
    if table.batch is not None:
        facts.append(("Batch", str(table.batch)))
    facts.append(("Domain boundaries", table.boundaries))
    seeds = {seed for row in table.rows for seed in row.seeds}
    return [*facts, ("Seeds", str(len(seeds)))]


def _gallery(folder: RunFolder, run: Run, table: Table) -> Gallery | None:
    """From the first DSS cell that saved samples; else from the last one that adapts."""
    order = sorted(run.cells, key=lambda cell: {"dss": 0, "source": 2}.get(cell.method, 1))
    classes = [str(name) for name in run.stream.get("classes") or ()]
    for cell in order:
        samples = folder.samples(cell.cell)
        if samples is not None and len(samples.images):
            return Gallery(cell.label, pictures.strips(samples, table.stretches, classes))
    return None


def _figures(scene: Scene) -> dict[str, list[Figure]]:
    """Every section's figures; a section without any is left out of the page."""
    single = {
        "errors": figures.errors(scene),
        "running": figures.running(scene),
        "clean": figures.clean(scene),
        "selection": figures.selection(scene),
    }
    sections = {name: [figure] if figure else [] for name, figure in single.items()}
    sections["threshold"] = figures.thresholds(scene)
    sections["accuracy"] = figures.accuracies(scene)
    sections["calibration"] = figures.calibrations(scene)
    sections["confidence"] = []
    if not scene.table.labelled and (figure := figures.confidence(scene)):
        sections["confidence"] = [figure]
    return sections


def _verdicts(scene: Scene) -> list[str]:
    """What the selection was worth, one sentence a label."""
    sentences = []
    for track in scene.tracks:
        if track.splits:
            whole = figures.overall(track)
            said = f"{track.label} selected {_percent(whole.share)} of the samples."
            if whole.selected_accuracy is not None and whole.rejected_accuracy is not None:
                said += (
                    f" Of these, {_percent(whole.selected_accuracy)} were right;"
                    f" of the rest, {_percent(whole.rejected_accuracy)}."
                )
            if whole.share > NEARLY_ALL:
                said += " Very little was rejected."
            sentences.append(said)
    return sentences


def _beside(folder: RunFolder) -> dict[str, Any] | None:
    """The run beside the paper's table; none unless it names one."""
    found = comparison.build(folder)
    if found is None:
        return None
    return {
        "title": found.title,
        "by_value": found.by_value,
        "grid": comparison.grid(found),
        "domains": comparison.domain_grid(found),
        "summary": found.summary(),
        "remarks": found.remarks,
    }


def _heat(table: Table) -> dict[str, list[float]]:
    """How warm each cell is, 0 to 1 over the whole table."""
    values = [value.mean for row in table.rows for value in (*row.errors, row.mean) if value]
    low, high = min(values, default=0.0), max(values, default=1.0)
    width = (high - low) or 1.0
    return {
        row.label: [round((value.mean - low) / width, 2) if value else 0.0 for value in (*row.errors, row.mean)]
        for row in table.rows
    }


def _cost(table: Table) -> list[dict[str, Any]]:
    """One line a label, with the length of its time bar."""
    slowest = max((row.cost.seconds for row in table.rows if row.cost.seconds), default=1.0)
    return [
        {
            "label": row.label,
            "bar": 100 * row.cost.seconds / slowest,
            "seconds": f"{row.cost.seconds:.3g} s",
            "p50": _optional(row.cost.p50, ".3g", " s"),
            "p95": _optional(row.cost.p95, ".3g", " s"),
            "speed": _optional(row.cost.images_per_second, ".0f"),
            "forwards": _optional(row.cost.forwards, ".3g"),
            "backwards": _optional(row.cost.backwards, ".3g"),
            "memory": _optional(row.cost.memory, ".0f", " MB"),
        }
        for row in table.rows
        if row.cost.seconds is not None
    ]


def _optional(value: float | None, style: str, unit: str = "") -> str:
    return tables.ABSENT if value is None else format(value, style) + unit


def _settings(cells: Sequence[Cell]) -> list[Settings]:
    """Cells of one label differ in the seed alone."""
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, []).append(cell)
    return [
        Settings(label, group[0].preset, ", ".join(str(cell.seed) for cell in group), _pairs(group[0].config))
        for label, group in by_label.items()
    ]


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in values.items()]


def _data(shown: Mapping[str, Sequence[Figure]]) -> dict[str, Any]:
    return {figure.name: figure.data for section in shown.values() for figure in section}


def _text(name: str) -> str:
    return (files("ctta.report.page") / name).read_text(encoding="utf-8")


def _inlined(name: str) -> Markup:
    """Our own file, which holds nothing from outside."""
    return Markup(_text(name))
