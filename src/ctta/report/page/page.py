"""The pages of runs and sweeps: gathers what the templates show."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ctta.base.errors import StateError
from ctta.base.text import harmless
from ctta.records.heads import TraitsHead
from ctta.records.sweep_folder import text
from ctta.report.metrics import Value, selection
from ctta.report.page import charts, figures, pictures
from ctta.report.page.figures import Scene
from ctta.report.results import Results
from ctta.report.tables import paper, render, summary, sweep
from ctta.report.tables.errors import ErrorTable, needs
from ctta.report.tables.paper import PaperComparison
from ctta.report.tables.render import Table, TableColumn
from ctta.report.tables.summary import MetricsTable
from ctta.report.tables.sweep import SweepErrors

log = logging.getLogger("ctta")

NEARLY_ALL = 95  # percent; a selection of more than that hardly selects, and the page says so
NEEDS = ("method", "learns", "forward passes", "updates", "prediction", "source data", "boundaries")


def make(results: Results, errors: ErrorTable, metrics: MetricsTable, comparison: PaperComparison | None) -> str:
    """One self-contained page."""
    run = results.run
    scene = Scene.of(results, errors)
    sections = figures.draw(scene)
    shown, strips = _gallery(results, errors)
    context = {
        "run": run,
        "table": errors,
        "styles": scene.styles,
        "swatch": charts.swatch,
        "headline": headline(errors),
        "each": pictures.EACH,
        "shown": shown,
        "strips": strips,
        "figures": sections,
        "verdicts": _verdicts(scene),
        "comparison": comparison,
        "compared": paper.tables(comparison) if comparison else [],
        "metrics": summary.table(metrics) if errors.labelled else None,
        "heat": _heat(errors),
        "needs": _needs(errors),
        "method_runs": results.by_label(),
        "pairs_of": _pairs,
        "experiment": json.dumps(run.experiment, indent=2, ensure_ascii=False),
        "data": {
            "table": render.plain_data(errors, unit="percent error"),
            "metrics": render.plain_data(metrics),
            "charts": {figure.name: figure.data for section in sections.values() for figure in section},
        },
    }
    return _fill("run.html.jinja", context)


def make_sweep(made: SweepErrors) -> str:
    """The page of a sweep: its tables, with a link to each point's own page."""
    parts = [("Averages", sweep.table(made, True))] if made.averages else []
    parts.append(("Points", sweep.table(made)))
    axes = [(key, key in made.head.over, list(map(text, values))) for key, values in made.head.axes.items()]
    return _fill("sweep.html.jinja", {"head": made.head, "parts": parts, "axes": axes})


def _fill(name: str, context: Mapping[str, Any]) -> str:
    """A page that loads nothing: styles and script are inside. All text in `context` is escaped."""
    environment = Environment(
        loader=PackageLoader("ctta.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: type(value)(harmless(value)) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    here = files("ctta.report.page")
    style, script = (Markup((here / part).read_text(encoding="utf-8")) for part in ("style.css", "page.js"))
    return environment.get_template(name).render(style=style, script=script, **context)


def headline(table: ErrorTable) -> tuple[str, str]:
    """The result in one sentence, and a remark on it. Methods that are not complete or not valid are not mentioned."""
    means = {row.label: row.mean.mean for row in table.rows if row.mean and not row.problems}
    source, dss = table.row_of("source"), table.row_of("dss")
    if not means:
        unlabelled = "This stream has no labels: only what needs none is shown."
        return "No method is complete yet." if table.labelled else unlabelled, ""
    lowest = min(means, key=lambda label: means[label])
    if source is None or dss is None or not {source.label, dss.label} <= means.keys():
        among = f"The lowest mean error of {len(means)} complete methods." if len(means) > 1 else ""
        return f"{lowest} misclassifies {_percent(means[lowest])} of {table.samples}.", among
    before, after = means[source.label], means[dss.label]
    fewer = f"That is {100 * (1 - after / before):.0f}\u202f% fewer mistakes, learned without any label."
    more = fewer if after < before else "On this stream, adapting did not help."
    if lowest != dss.label:
        more += f" The lowest error in this run is {lowest}’s, {_percent(means[lowest])}."
    return f"{source.label} misclassifies {_percent(before)} of {table.samples}; {dss.label} {_percent(after)}.", more


def _percent(value: float) -> str:
    return f"{value:.1f}\u202f%"


def _gallery(results: Results, table: ErrorTable) -> tuple[str, list[tuple[str, list[pictures.Picture]]]]:
    """Samples of each domain and whose predictions they show: DSS if it saved samples, else the first that adapts."""
    run = results.run
    order = sorted(run.cells, key=lambda cell: {"dss": 0, "source": 2}.get(cell.method, 1))
    classes = [str(name) for name in run.stream.get("classes") or ()]
    for cell in order:
        try:
            samples = results.folder.samples(cell.cell)
        except StateError as error:
            log.warning("%s The page shows no images of %s.", error, cell.label)
            continue
        if samples is not None and len(samples.images):
            return cell.label, pictures.strips(samples, table.segments, classes)
    return "", []


def _verdicts(scene: Scene) -> list[str]:
    """What the selection was worth, one sentence per method."""
    sentences = []
    for track in scene.tracks:
        if whole := selection(track.records):
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


def _heat(table: ErrorTable) -> Callable[[Value | None], float]:
    """The colour of a value, from 0 to 1 over the whole table."""
    values = [value.mean for row in table.rows for value in (*row.errors, row.mean) if value]
    low, high = min(values, default=0.0), max(values, default=1.0)
    return lambda value: round((value.mean - low) / ((high - low) or 1.0), 2) if value else 0.0


def _needs(table: ErrorTable) -> Table | None:
    """What the methods declare; none in folders that do not have it."""
    if not all(row.traits.keys() >= TraitsHead.__annotations__.keys() for row in table.rows):
        return None
    rows = ((row.label + row.dagger, *needs(row.traits).values()) for row in table.rows)
    columns = (TableColumn(head, "name" if head == "method" else "number") for head in NEEDS)
    return Table(tuple(columns), render.cells(rows))


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in values.items()]
