"""What each method gains over a baseline, what it keeps, and what that costs: the second table of a run.

Definitions: `ctta.report.metrics`. A method run counts once it is complete. Several seeds become mean and standard
deviation. The baseline is the one that the experiment names, else Source if it is in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctta.records.run_folder import Record
from ctta.report import metrics
from ctta.report.metrics import Cost, Difference, Interval, Value, over_seeds
from ctta.report.results import MethodRun, Results
from ctta.report.tables.errors import ErrorTable, MethodErrors, Outcome
from ctta.report.tables.render import (
    ABSENT,
    Table,
    TableColumn,
    best_in,
    cells,
    data_table,
    formatted,
    lacking,
    printed,
    signed,
)


@dataclass(frozen=True)
class MethodMetrics(Outcome):
    """One row: a method, over its seeds; none if a number is not known."""

    label: str
    method: str
    seeds: tuple[int, ...]  # those that are complete
    error: Value | None
    difference: Difference | None  # none for the baseline itself
    running: tuple[Value | None, ...]  # error so far, after each segment
    recovery: Value | None  # batches
    ending: Value | None  # error over the last segment or round
    compared: int  # seeds whose end can be compared with Source's
    collapsed: int  # those of them that end worse
    calibration: Value | None
    selected: Value | None  # percent of the samples
    selected_accuracy: Value | None
    rejected_accuracy: Value | None
    clean: tuple[Value | None, ...]  # error on clean samples after each segment; empty if it was not measured
    forgetting: Value | None
    cost: Cost
    status: str  # as in the first table
    problems: tuple[str, ...]

    @property
    def against(self) -> Difference:
        """The difference, without intervals if there is none."""
        return self.difference or Difference(0.0, None, None)


@dataclass(frozen=True)
class MetricsTable:
    """All methods of one run."""

    name: str
    identity: str
    baseline: str | None
    ending: str  # where collapse is judged
    boundaries: str
    protocol: str
    segments: tuple[str, ...]
    rows: tuple[MethodMetrics, ...]
    varied: str  # what seeds move, in words

    def notes(self) -> list[str]:
        """One sentence each: what the columns mean."""
        found = [row.difference for row in self.rows if row.difference]
        level = f"within {metrics.TOLERANCE:g} point of its final level, apart from sampling noise"
        sentences = {
            "Best in bold.": len(self.rows) > 1,
            f"vs {self.baseline}: difference in percentage points, paired; negative is better.": found,
            f"95 % over seeds: {self.varied}.": any(one.over_seeds for one in found),
            "95 % over batches: other samples of the same domains.": any(one.over_batches for one in found),
            f"Ends worse: runs whose error over {self.ending} is above Source's.": any(
                row.compared for row in self.rows
            ),
            f"Recovery: batches until a domain's error is {level}.": any(row.recovery for row in self.rows),
            "Clean: error on clean samples at the end; forgot: points above the unadapted model's.": any(
                row.clean for row in self.rows
            ),
        }
        return [words for words, holds in sentences.items() if holds]


# Building


Seeds = Mapping[int, Sequence[Record]]  # by seed: the records of a complete method run


def build(results: Results, table: ErrorTable) -> MetricsTable:
    """From the results of a run, complete or not, and its errors."""

    def is_complete(one: MethodRun) -> bool:
        """Whether it went through the whole stream, with labels."""
        return len(metrics.segment_counts(one.records, one.done, table.images)) == len(table.segments)

    complete: dict[str, Seeds] = {
        label: {one.cell.seed: one.records for one in runs if is_complete(one)}
        for label, runs in results.by_label().items()
    }
    source = table.row_of("source")
    baseline = results.run.experiment.get("baseline") or (source.label if source else None)
    ending = table.rounds[-1] if table.rounds else table.segments[-1]
    return MetricsTable(
        table.name,
        table.identity,
        baseline,
        "the last round" if table.rounds else f"the last domain ({ending.words})",
        table.boundaries,
        table.protocol,
        tuple(segment.title for segment in table.segments),
        tuple(
            _row(
                row,
                complete[row.label],
                complete[source.label] if source and row is not source else {},
                complete.get(baseline or "", {}) if row.label != baseline else {},
                ending.positions,
            )
            for row in table.rows
        ),
        table.varied,
    )


def _row(errors: MethodErrors, own: Seeds, source: Seeds, baseline: Seeds, ending: Sequence[int]) -> MethodMetrics:
    """Source and the baseline are not compared with themselves: there, the others are empty."""

    def end(records: Sequence[Record]) -> float:
        return metrics.total_error(record for record in records if record.position in ending)

    def over(read: Callable[[Sequence[Record]], float | None]) -> Value | None:
        return _over_known(map(read, own.values()))

    common = own.keys() & source.keys()
    splits = [split for records in own.values() if (split := metrics.selection(records))]
    clean = [metrics.clean_errors(records) for records in own.values()]
    return MethodMetrics(
        label=errors.label,
        method=errors.method,
        seeds=tuple(own),
        error=errors.mean,
        difference=metrics.difference(own, baseline),
        running=_running(own.values()),
        recovery=over(metrics.mean_recovery),
        ending=over(end),
        compared=len(common),
        collapsed=sum(end(own[seed]) > end(source[seed]) for seed in common),
        calibration=over(lambda records: metrics.calibration_error(metrics.calibration_bins(records))),
        selected=over_seeds(split.share for split in splits),
        selected_accuracy=_over_known(split.selected_accuracy for split in splits),
        rejected_accuracy=_over_known(split.rejected_accuracy for split in splits),
        clean=tuple(
            over_seeds(found[position] for found in clean)
            for position in sorted(set.intersection(*map(set, clean)) if clean else ())
        ),
        forgetting=over(metrics.forgetting),
        cost=errors.cost,
        status=errors.status,
        problems=errors.problems,
    )


def _running(runs: Iterable[Sequence[Record]]) -> tuple[Value | None, ...]:
    """The error so far, after each segment."""
    series = []
    for records in runs:
        segments = metrics.segments(records).values()
        sizes = [sum(record.scored for record in batches) for batches in segments]
        series.append(metrics.running_error([metrics.total_error(batches) for batches in segments], sizes))
    return tuple(map(_over_known, zip(*series, strict=True)))


def _over_known(values: Iterable[float | None]) -> Value | None:
    return over_seeds(value for value in values if value is not None)


# Tables


def table(made: MetricsTable, *, spread: bool = True, costs: bool = False) -> Table:
    """Gains and what is kept, the most wanted first; columns without a number are left out.

    Without `spread`, only the error keeps its standard deviation.
    """
    reads: list[tuple[str, Callable[[MethodMetrics], str]]] = [
        ("error", lambda row: printed(row.error)),
        (f"vs {made.baseline}", lambda row: signed(row.difference.mean if row.difference else None)),
        ("95 % over seeds", lambda row: _between(row.against.over_seeds)),
        ("95 % over batches", lambda row: _between(row.against.over_batches)),
        ("ends worse", lambda row: f"{row.collapsed} of {row.compared}" if row.compared else ABSENT),
        ("ECE", lambda row: printed(row.calibration, spread=spread)),
        ("recovery", lambda row: printed(row.recovery, spread=spread)),
        ("clean", lambda row: printed(row.clean[-1] if row.clean else None, spread=spread)),
        ("forgot", lambda row: signed(row.forgetting.mean if row.forgetting else None)),
        ("selected right", lambda row: printed(row.selected_accuracy, spread=spread)),
        ("rejected right", lambda row: printed(row.rejected_accuracy, spread=spread)),
    ]
    if costs:  # half of the batches take at most p50 seconds, 95 % of them p95
        reads = [read for read in reads if not read[0].endswith("right")] + [
            ("p50 s", lambda row: formatted(row.cost.p50, ".3g")),
            ("p95 s", lambda row: formatted(row.cost.p95, ".3g")),
            ("MB", lambda row: formatted(row.cost.memory, ".0f")),
        ]
    texts = {head: [read(row) for row in made.rows] for head, read in reads}
    shown = {head: found for head, found in texts.items() if set(found) - {ABSENT}}
    names = [row.label + (" (not valid)" if row.problems else "") for row in made.rows]
    rows = cells(zip(names, *shown.values(), strict=True))
    made_table = Table((TableColumn("", "name"), *map(TableColumn, shown)), rows, caption=(" ".join(made.notes()),))
    lower = dict.fromkeys(("error", f"vs {made.baseline}", "ECE", "clean", "forgot"), min)
    valid = [number for number, row in enumerate(made.rows) if not row.problems]
    return best_in(made_table, {**lower, "selected right": max}, valid)


def layouts(made: MetricsTable) -> Iterator[Table]:
    """For the terminal; what does not fit is left out from the right."""
    whole = table(made, spread=False, costs=True)
    heads = [column.head for column in (*whole.columns, *table(made).columns)]
    for count in range(max(len(whole.columns), 2), 1, -1):
        part = replace(whole, columns=whole.columns[:count], rows=tuple(row[:count] for row in whole.rows))
        shown = [column.head for column in part.columns]
        yield lacking(part, [head for head in dict.fromkeys(heads) if head not in shown], "metrics.csv")


def data(made: MetricsTable) -> Table:
    """For CSV: a name for every number, with six digits."""
    rows = [_flat(made, row).items() for row in made.rows]
    return data_table([{name: f"{x:.6g}" if isinstance(x, float) else x for name, x in row} for row in rows])


def _flat(made: MetricsTable, row: MethodMetrics) -> dict[str, Any]:
    """A row with a name for every number; none if it is not known."""

    def pair(name: str, value: Value | None) -> dict[str, Any]:
        return {name: None if value is None else value.mean, f"{name}_sd": None if value is None else value.sd}

    def ends(name: str, found: Interval | None) -> dict[str, Any]:
        return dict(zip((f"{name}_low", f"{name}_high"), found or (None, None), strict=True))

    return {
        "label": row.label,
        "method": row.method,
        "seeds": " ".join(map(str, row.seeds)),
        **pair("error", row.error),
        "baseline": made.baseline,
        "difference": row.difference and row.difference.mean,
        **ends("over_seeds", row.against.over_seeds),
        **ends("over_batches", row.against.over_batches),
        **pair("recovery_batches", row.recovery),
        **pair("ending_error", row.ending),
        "ending": made.ending,
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
        "boundaries": made.boundaries,
        "protocol": made.protocol,
        **row.outcome(),
    }


def _between(found: Interval | None) -> str:
    return " to ".join(map(signed, found)) if found else ABSENT
