"""The pages of runs and sweeps: gathers what the templates show."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ctta.base.errors import StateError
from ctta.base.text import harmless
from ctta.records.heads import TraitsHead
from ctta.records.run_folder import Samples
from ctta.records.sweep_folder import SweepFolder, text
from ctta.report import verdict
from ctta.report.metrics import Value, selection
from ctta.report.page import charts, figures, pictures, sweep_figures
from ctta.report.page.figures import Scene
from ctta.report.results import Results
from ctta.report.tables import paper, render, summary, sweep
from ctta.report.tables.errors import CostColumn, ErrorTable, needs
from ctta.report.tables.paper import PaperComparison
from ctta.report.tables.render import Table, TableColumn
from ctta.report.tables.summary import MetricsTable
from ctta.report.tables.sweep import SweepErrors

log = logging.getLogger("ctta")

NEARLY_ALL = 95  # percent; a selection of more than that hardly selects, and the page says so
DOWNLOADS = [f"{name}.{form}" for name in ("table", "metrics", "comparison") for form in ("csv", "tex")]
BACK = "../../report.html"  # from a point's page to that of its sweep
DECLARED = ("prediction", "source", "boundaries")
NEEDS = ("method", "learns", "forward passes", "updates", "prediction", "source data", "boundaries")


def make(
    results: Results,
    errors: ErrorTable,
    metrics: MetricsTable,
    comparison: PaperComparison | None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """One self-contained page; `files` are the tables that it offers for download, by name."""
    run = results.run
    scene = Scene.of(results, errors)
    sections = figures.draw(scene)
    shown, samples = _gallery(results)
    classes = [str(name) for name in run.stream.get("classes") or ()]
    costs, needed = _costs(errors), _needs(scene)
    offered = {name: files[name] for name in DOWNLOADS if name in files} | _files(cost=costs, needs=needed)
    context = {
        "run": run,
        "table": errors,
        "styles": scene.styles,
        "swatch": charts.swatch,
        "headline": headline(errors),
        "verdict": None if errors.labelled else verdict.of(results),
        "back": BACK if SweepFolder.home(results.folder.path) != results.folder.path else "",
        "each": pictures.EACH,
        "shown": shown,
        "strips": pictures.strips(samples, errors.segments, classes) if samples and errors.labelled else [],
        "changed": pictures.changed(samples, classes) if samples and not errors.labelled else [],
        "figures": sections,
        "verdicts": _verdicts(scene),
        "comparison": comparison,
        "compared": paper.tables(comparison) if comparison else [],
        "meaning": paper.VERDICTS,
        "metrics": summary.table(metrics) if errors.labelled else None,
        "heat": _heat(errors),
        "costs": costs,
        "needs": needed,
        "method_runs": results.by_label(),
        "pairs_of": _pairs,
        "experiment": json.dumps(run.experiment, indent=2, ensure_ascii=False),
        "data": {
            "table": render.plain_data(errors, unit="percent error"),
            "metrics": render.plain_data(metrics),
            "charts": {figure.name: figure.data for section in sections.values() for figure in section},
            "files": offered,
        },
    }
    return _fill("run.html.jinja", context)


def make_sweep(made: SweepErrors, files: Mapping[str, str] = MappingProxyType({})) -> str:
    """The page of a sweep: its best point, figures and tables, with a link to each point's own page."""
    parts = [("Averages", "averages", sweep.table(made, True))] if made.averages else []
    parts.append(("Points", "summary", sweep.table(made)))
    drawn = sweep_figures.draw(made)
    context = {
        "head": made.head,
        "best": sweep_figures.best(made),
        "parts": parts,
        "figures": drawn,
        "axes": [(key, key in made.head.over, list(map(text, values))) for key, values in made.head.axes.items()],
        "data": {
            "charts": {figure.name: figure.data for figure in drawn},
            "files": {name: words for name, words in files.items() if name.endswith((".csv", ".tex"))},
        },
    }
    return _fill("sweep.html.jinja", context)


def _fill(name: str, context: Mapping[str, Any]) -> str:
    """A page that loads nothing: styles and script are inside. All text in `context` is escaped."""
    here = resources.files("ctta.report.page")
    style, script = (Markup((here / part).read_text(encoding="utf-8")) for part in ("style.css", "page.js"))
    return _environment().get_template(name).render(style=style, script=script, **context)


@cache
def _environment() -> Environment:
    """It keeps its templates: to read one takes longer than to fill it."""
    return Environment(
        loader=PackageLoader("ctta.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: type(value)(harmless(value)) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def headline(table: ErrorTable) -> tuple[str, str]:
    """The result in one sentence, and a remark on it. Methods that are not complete or not valid are not mentioned."""
    means = {row.label: row.mean.mean for row in table.rows if row.mean and not row.problems}
    source = table.row_of("source")
    if not means:
        unlabelled = "This stream has no labels: only what needs none is shown."
        return "No method is complete yet." if table.labelled else unlabelled, ""
    lowest = min(means, key=lambda label: means[label])
    among = f"The lowest mean error of {len(means)} complete methods" if len(means) > 1 else ""
    leaders = [label for label in means if label in table.best[-1]] or [lowest]  # equal ones, as printed
    led = " and ".join(leaders) if len(leaders) < 3 else f"{leaders[0]} and {len(leaders) - 1} others"
    if source is None or source.label not in means:
        verb = "misclassifies" if len(leaders) == 1 else "misclassify"
        return f"{led} {verb} {_percent(means[lowest])} of {table.samples}.", among and f"{among}."
    before, after = means[source.label], means[lowest]
    said = f"{source.label} misclassifies {_percent(before)} of {table.samples}"
    if source.label in leaders:
        return f"{said}.", f"{among}: on this stream, adapting did not help." if among else ""
    fewer = f"That is {100 * (1 - after / before):.0f}\u202f% fewer mistakes, learned without any label."
    return f"{said}; {led} {_percent(after)}.", f"{fewer} {among}."


def _percent(value: float) -> str:
    return f"{value:.1f}\u202f%"


def _gallery(results: Results) -> tuple[str, Samples | None]:
    """Saved samples, and whose predictions they show: DSS if it saved samples, else the first that adapts."""
    order = sorted(results.run.cells, key=lambda cell: {"dss": 0, "source": 2}.get(cell.method, 1))
    for cell in order:
        try:
            samples = results.folder.samples(cell.cell)
        except StateError as error:
            log.warning("%s The page shows no images of %s.", error, cell.label)
            continue
        if samples is not None and len(samples.images):
            return cell.label, samples
    return "", None


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


def _costs(table: ErrorTable) -> Table | None:
    """Times, passes and memory as measured; none before the first batch."""
    reads: tuple[CostColumn, ...] = (
        ("s/batch", lambda cost: cost.seconds, ".3g"),
        ("p50 s", lambda cost: cost.p50, ".3g"),
        ("p95 s", lambda cost: cost.p95, ".3g"),
        (table.rate, lambda cost: cost.images_per_second, ".0f"),
        ("forward passes", lambda cost: cost.forwards, ".3g"),
        ("updates", lambda cost: cost.backwards, ".3g"),
        ("peak memory, MB", lambda cost: cost.memory, ".0f"),
    )
    rows = [row for row in table.rows if row.cost.seconds is not None]
    texts = ([row.label, *(render.formatted(read(row.cost), style) for _, read, style in reads)] for row in rows)
    columns = (TableColumn("method", "name"), *(TableColumn(head) for head, _, _ in reads))
    return Table(columns, render.cells(texts)) if rows else None


def _needs(scene: Scene) -> Table | None:
    """What the methods declare, and the passes that they took in this run; none in folders that do not have it."""
    table = scene.table
    if not all(row.traits.keys() >= TraitsHead.__annotations__.keys() for row in table.rows):
        return None
    taken = {track.label: track.records for track in scene.tracks}

    def span(label: str, name: str) -> str:
        found = [record.info[name] for record in taken.get(label, ()) if name in record.info]
        low, high = min(found, default=0.0), max(found, default=0.0)
        return render.ABSENT if not found else f"{low:g}" if low == high else f"{low:g} to {high:g}"

    rows = []
    for row in table.rows:
        said = needs(row.traits)
        passes = span(row.label, "forwards"), span(row.label, "backwards")
        rows.append((row.label + row.dagger, said["learns"], *passes, *(said[name] for name in DECLARED)))
    columns = (TableColumn(head, "name" if head == "method" else "number") for head in NEEDS)
    return Table(tuple(columns), render.cells(rows))


def _files(**tables: Table | None) -> dict[str, str]:
    """The files of tables that only the page has, by name."""
    found = {name: table for name, table in tables.items() if table}
    csv = {f"{name}.csv": render.to_csv(table) for name, table in found.items()}
    return csv | {f"{name}.tex": render.to_latex(table) for name, table in found.items()}


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in values.items()]
