"""The second table of a run folder: what a method gains over the baseline, what it keeps, and what that costs.

Definitions: `report.metrics`. A cell counts once it is complete. Seeds of one label become mean and standard
deviation. The baseline is the label that the experiment names, else Source where it is in the run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ctta.records.run_folder import Record, RunFolder
from ctta.report import metrics
from ctta.report.metrics import Cost, Counts, Difference, Interval, Split, Value, over_seeds
from ctta.report.tables import errors as tables
from ctta.report.tables.errors import ABSENT, Table, Trial


@dataclass(frozen=True)
class Row:
    """One label; none where a number is not known."""

    label: str
    method: str
    seeds: tuple[int, ...]  # those that are complete
    error: Value | None
    difference: Difference | None  # none for the baseline itself
    running: tuple[Value | None, ...]  # error so far, after each stretch
    recovery: Value | None  # batches
    ending: Value | None  # error over the last stretch or round
    compared: int  # cells whose end can be held against Source's
    collapsed: int  # those of them that end worse
    calibration: Value | None
    selected: Value | None  # share of the samples
    selected_accuracy: Value | None
    rejected_accuracy: Value | None
    clean: tuple[Value | None, ...]  # error on clean samples after each stretch; empty where it was not measured
    forgetting: Value | None
    cost: Cost
    status: str  # as in the first table
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """All labels of one run."""

    name: str
    identity: str
    baseline: str | None
    ending: str  # over what collapse is judged
    boundaries: str
    protocol: str
    stretches: tuple[str, ...]
    rows: tuple[Row, ...]

    def notes(self) -> list[str]:
        """One sentence each: what the columns mean."""
        said = []
        found = [row.difference for row in self.rows if row.difference]
        if found:
            said.append(f"Against {self.baseline}: points of error, paired; below 0 is better.")
        if any(difference.over_seeds for difference in found):
            said.append("95 % over seeds: the method's own chance, on these samples.")
        if any(difference.over_batches for difference in found):
            said.append("95 % over batches: other samples of the same domains.")
        if any(row.compared for row in self.rows):
            said.append(f"Ends worse: runs whose error over {self.ending} is above Source's.")
        if any(row.recovery for row in self.rows):
            said.append(
                f"Recovery: batches until a domain's error is within {metrics.TOLERANCE:g} point of its final level, "
                "chance aside."
            )
        if any(row.clean for row in self.rows):
            said.append("Clean: error on clean samples at the end; forgot: points above the unadapted model's.")
        return said


# Building


@dataclass(frozen=True)
class _Cell:
    """A complete cell."""

    records: tuple[Record, ...]
    counts: Counts


def build(folder: RunFolder, table: Table) -> Summary:
    """From a run folder, complete or not, and its first table."""
    run = folder.run()
    cells = {
        label: _complete(trials, table.images, len(table.stretches))
        for label, trials in tables.read_trials(folder, run).items()
    }
    source = next((row.label for row in table.rows if row.method == "source"), None)
    baseline = run.experiment.get("baseline") or source
    ending = table.rounds[-1] if table.rounds else table.stretches[-1]

    def row(first: tables.Row) -> Row:
        own, unadapted, compared = (cells.get(label or "", {}) for label in (first.label, source, baseline))
        ends = [
            metrics.collapsed(own[seed].counts, unadapted[seed].counts, ending.positions)
            for seed in own.keys() & unadapted.keys()
            if first.label != source
        ]
        records, others = ({seed: cell.records for seed, cell in group.items()} for group in (own, compared))
        difference = metrics.difference(records, others) if first.label != baseline else None
        return _row(first, own, ending.positions, difference, ends)

    return Summary(
        table.name,
        table.identity,
        baseline,
        "the last round" if table.rounds else f"the last domain ({ending.title})",
        table.boundaries,
        table.protocol,
        tuple(stretch.title for stretch in table.stretches),
        tuple(row(first) for first in table.rows),
    )


def _complete(trials: Sequence[Trial], images: int | None, stretches: int) -> dict[int, _Cell]:
    """By seed, the cells that went through the whole stream, with labels."""
    found = {
        trial.cell.seed: _Cell(trial.records, metrics.stretch_counts(trial.records, trial.done, images))
        for trial in trials
    }
    return {seed: cell for seed, cell in found.items() if len(cell.counts) == stretches}


def _row(
    first: tables.Row,
    seeds: Mapping[int, _Cell],
    ending: Sequence[int],
    difference: Difference | None,
    ends: Sequence[bool],
) -> Row:
    cells = list(seeds.values())

    def over(read: Callable[[_Cell], float | None]) -> Value | None:
        return over_seeds(value for cell in cells if (value := read(cell)) is not None)

    def selection(read: Callable[[Split], float | None]) -> Value | None:
        return over(lambda cell: read(split) if (split := metrics.selection(cell.records)) else None)

    clean = [metrics.clean_errors(cell.records) for cell in cells]
    return Row(
        label=first.label,
        method=first.method,
        seeds=tuple(seeds),
        error=first.mean,
        difference=difference,
        running=_running(cells),
        recovery=over(lambda cell: metrics.mean_recovery(cell.records)),
        ending=over(lambda cell: metrics.error(cell.counts, ending)),
        compared=len(ends),
        collapsed=sum(ends),
        calibration=over(lambda cell: metrics.calibration_error(metrics.calibration_bins(cell.records))),
        selected=selection(lambda split: split.share),
        selected_accuracy=selection(lambda split: split.selected_accuracy),
        rejected_accuracy=selection(lambda split: split.rejected_accuracy),
        clean=tuple(
            over_seeds(found[position] for found in clean)
            for position in sorted(set.intersection(*map(set, clean)) if clean else ())
        ),
        forgetting=over(lambda cell: metrics.forgetting(cell.records)),
        cost=first.cost,
        status=first.status,
        problems=first.problems,
    )


def _running(cells: Sequence[_Cell]) -> tuple[Value | None, ...]:
    """The error so far, after each stretch."""
    series = []
    for cell in cells:
        wrong, sizes = zip(*(cell.counts[position] for position in sorted(cell.counts)), strict=True)
        series.append(metrics.running_error([100 * w / n for w, n in zip(wrong, sizes, strict=True)], sizes))
    return tuple(over_seeds(value for value in after if value is not None) for after in zip(*series, strict=True))


# Rendering


@dataclass(frozen=True)
class Column:
    """One column as it is shown: a text a row."""

    head: str
    texts: tuple[str, ...]


def columns(summary: Summary, *, spread: bool = True) -> list[Column]:
    """Gains and what is kept, as far as there is something to show; the most wanted first.

    Without `spread`, only the error keeps its standard deviation.
    """

    def said(value: Value | None) -> str:
        return ABSENT if value is None else str(value if spread else replace(value, sd=None))

    reads: list[tuple[str, Callable[[Row], str]]] = [
        ("error", lambda row: str(row.error or ABSENT)),
        (f"vs {summary.baseline}", lambda row: _signed(row.difference)),
        ("95 % over seeds", lambda row: _between(_over_seeds(row))),
        ("95 % over batches", lambda row: _between(_over_batches(row))),
        ("ends worse", lambda row: f"{row.collapsed} of {row.compared}" if row.compared else ABSENT),
        ("ECE", lambda row: said(row.calibration)),
        ("recovery", lambda row: said(row.recovery)),
        ("clean", lambda row: said(row.clean[-1] if row.clean else None)),
        ("forgot", lambda row: _signed(row.forgetting)),
        ("selected right", lambda row: said(row.selected_accuracy)),
        ("rejected right", lambda row: said(row.rejected_accuracy)),
    ]
    return _shown(summary, reads)


def cost_columns(summary: Summary) -> list[Column]:
    """What a batch takes: half and 95 % of them stay below so many seconds; memory."""
    reads: list[tuple[str, Callable[[Row], str]]] = [
        ("p50 s", lambda row: _number(row.cost.p50)),
        ("p95 s", lambda row: _number(row.cost.p95)),
        ("MB", lambda row: _number(row.cost.memory, ".0f")),
    ]
    return _shown(summary, reads)


def to_rich(summary: Summary, width: int = 120) -> RichTable:
    """For the terminal; what does not fit is left out from the right."""
    kept = [column for column in columns(summary, spread=False) if not column.head.endswith("right")] + cost_columns(
        summary
    )
    console = Console(width=10_000)
    layouts = (_rich(summary, kept[:count]) for count in range(len(kept), 0, -1))
    fitting = (rich for rich in layouts if Measurement.get(console, console.options, rich).maximum <= width)
    return next(fitting, _rich(summary, kept[:1]))


def to_csv(summary: Summary) -> str:
    """One line a label, unrounded but for the digits that nobody needs."""
    lines = [_flat(summary, row) for row in summary.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in line.items()} for line in lines
    )
    return out.getvalue()


def to_json(summary: Summary) -> dict[str, Any]:
    """Plain data, unrounded."""
    return asdict(summary)


def _flat(summary: Summary, row: Row) -> dict[str, Any]:
    """A row with a name for every number; an empty text where it is not known."""

    def pair(name: str, value: Value | None) -> dict[str, Any]:
        return {name: None if value is None else value.mean, f"{name}_sd": None if value is None else value.sd}

    def ends(name: str, found: Interval | None) -> dict[str, Any]:
        return dict(zip((f"{name}_low", f"{name}_high"), found or (None, None), strict=True))

    return {
        "label": row.label,
        "method": row.method,
        "seeds": " ".join(map(str, row.seeds)),
        **pair("error", row.error),
        "baseline": summary.baseline,
        "difference": row.difference and row.difference.mean,
        **ends("over_seeds", _over_seeds(row)),
        **ends("over_batches", _over_batches(row)),
        **pair("recovery_batches", row.recovery),
        **pair("ending_error", row.ending),
        "ending": summary.ending,
        "compared_with_source": row.compared,
        "ends_worse_than_source": row.collapsed if row.compared else None,
        **pair("ece", row.calibration),
        **pair("selected_share", row.selected),
        **pair("selected_accuracy", row.selected_accuracy),
        **pair("rejected_accuracy", row.rejected_accuracy),
        **pair("clean_error", row.clean[-1] if row.clean else None),
        **pair("forgetting", row.forgetting),
        "forwards": row.cost.forwards,
        "backwards": row.cost.backwards,
        "p50_seconds": row.cost.p50,
        "p95_seconds": row.cost.p95,
        "peak_memory_mb": row.cost.memory,
        "boundaries": summary.boundaries,
        "protocol": summary.protocol,
        "status": row.status or ("invalid" if row.problems else "complete"),
        "problems": "; ".join(row.problems),
    }


def _shown(summary: Summary, reads: Sequence[tuple[str, Callable[[Row], str]]]) -> list[Column]:
    made = [Column(head, tuple(read(row) for row in summary.rows)) for head, read in reads]
    return [column for column in made if set(column.texts) - {ABSENT}]


def _rich(summary: Summary, shown: Sequence[Column]) -> RichTable:
    rich = RichTable(caption=Text(" ".join(summary.notes())), caption_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    rich.add_column("", no_wrap=True)
    for column in shown:
        rich.add_column(Text(column.head), justify="right", no_wrap=True)
    for number, row in enumerate(summary.rows):
        mark = " (not valid)" if row.problems else ""
        rich.add_row(Text(row.label + mark), *(Text(column.texts[number]) for column in shown))
    return rich


def _number(value: float | None, style: str = ".3g") -> str:
    return ABSENT if value is None else format(value, style)


def _signed(value: Value | Difference | None) -> str:
    return ABSENT if value is None else _points(value.mean)


def _over_seeds(row: Row) -> Interval | None:
    return row.difference.over_seeds if row.difference else None


def _over_batches(row: Row) -> Interval | None:
    return row.difference.over_batches if row.difference else None


def _between(found: Interval | None) -> str:
    return " to ".join(map(_points, found)) if found else ABSENT


def _points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
