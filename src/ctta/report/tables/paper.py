"""Comparison with the paper: for each row of the paper's table its mean, ours, and a verdict.

Values are compared if data, model, domains and their order are the paper's; otherwise only the order of the methods is
compared, and no difference is shown. Other departures are listed: size, batch, boundaries, settings. A spread is one
standard deviation: ours over seeds, the paper's over orders if it gives one.

Pairs of rows are judged as `VERDICTS` says, with the intervals of `ctta.report.metrics`. Pairs that the paper prints as
equal are not judged; those of ours that differ by no more than rounding are open. With a single batch per domain there
is no interval over batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ctta import paper
from ctta.base.errors import StateError, nearest
from ctta.paper import ROUNDING, PaperTable
from ctta.records.run_folder import Record, Run
from ctta.report.metrics import Value, chance, interval_over_batches, over_seeds, total_error
from ctta.report.results import Results
from ctta.report.tables.errors import ErrorTable, StreamPart
from ctta.report.tables.render import ABSENT, Table, TableColumn, cells, data_table, formatted, printed, signed

KEPT, OPEN, REVERSED = "kept", "open", "reversed"
VERDICTS = (
    "Kept: the two methods are in the paper's order. Reversed: they are not. Open: other samples or seeds might "
    "reverse them, because a 95 % interval of their paired difference includes 0: the one over batches, or with "
    "several seeds the one over seeds."
)


@dataclass(frozen=True)
class MethodResult:
    """What a run has for one row of the paper."""

    label: str
    mean: Value | None
    errors: Mapping[str, Value] = field(default_factory=dict)  # by domain
    remark: str = ""  # why its mean does not count: it is not complete, or not valid
    departures: tuple[str, ...] = ()  # settings that are not the paper's
    runs: Mapping[tuple[int, int], Sequence[Record]] = field(default_factory=dict)  # complete, by order and seed


Ours = Mapping[str, MethodResult]  # by the title of the paper's row


@dataclass(frozen=True)
class ComparedError:
    """One number of the paper and ours."""

    paper: float
    ours: Value | None
    difference: float | None  # ours minus the paper's; none if values are not compared


@dataclass(frozen=True)
class ComparedMethod:
    """One row of the paper and ours."""

    label: str
    mean: ComparedError
    paper_sd: float | None
    domains: Mapping[str, ComparedError]
    rank: tuple[int, int] | None  # among the rows that count, the paper's and ours
    verdict: str


@dataclass(frozen=True)
class PairCounts:
    """How many pairs of rows are in the paper's order."""

    kept: int
    reversed: int
    open: int

    @property
    def judged(self) -> int:
        """All pairs with different errors in the paper."""
        return self.kept + self.reversed + self.open

    def __str__(self) -> str:
        return f"{self.kept}/{self.judged}" if self.judged else ABSENT


@dataclass(frozen=True)
class PaperComparison:
    """A run compared with a table of the paper."""

    table: str
    title: str
    by_value: bool  # otherwise only by order
    lines: tuple[ComparedMethod, ...]
    pairs: PairCounts
    domains: tuple[StreamPart, ...]  # those that both have
    domain_pairs: tuple[PairCounts, ...]  # one per domain
    remarks: tuple[str, ...]

    def summary(self) -> str:
        """One sentence."""
        if not self.pairs.judged:
            return "There are no two rows to compare."
        rest = [f"{n} {word}" for n, word in ((self.pairs.reversed, REVERSED), (self.pairs.open, OPEN)) if n]
        judged = f"{self.pairs.kept} of {self.pairs.judged} pairs of methods are in the paper's order"
        return ", ".join([judged, *rest]) + "."


# Building


def build(*runs: tuple[Results, ErrorTable]) -> PaperComparison | None:
    """From a run, complete or not; none unless its experiment names a table of the paper.

    Several runs are one experiment with its domains in several orders: each counts once, with its mean over seeds.
    """
    run, errors = runs[0][0].run, runs[0][1]
    name = run.experiment.get("paper")
    if name is None:
        return None
    if name not in paper.TABLES:
        where = runs[0][0].folder.path / "run.json"
        raise StateError(f"{where} names the paper's table {name!r}, and there is none. {nearest(name, paper.TABLES)}")
    published = paper.table(name)
    unlike = other_setup(published, errors, run.experiment.get("model") or {}, run.stream["domains"])
    every = [_ours(published, *one, number) for number, one in enumerate(runs)]
    ours = {title: pooled([found[title] for found in every if title in found]) for title in every[0]}
    remarks = list(_remarks(published, run, errors, unlike, ours, len(runs)))
    reduced = not unlike and errors.images is not None and errors.images < published.setup.images
    columns = errors.columns if errors.by_segment else ()
    return compare(published, ours, columns, by_value=not unlike, reduced=reduced, remarks=remarks)


def pooled(found: Sequence[MethodResult]) -> MethodResult:
    """One row over several runs."""
    if len(found) == 1:
        return found[0]
    means = [one.mean.mean for one in found if one.mean is not None]
    errors = {
        name: value
        for name in found[0].errors
        if (value := over_seeds(one.errors[name].mean for one in found if name in one.errors))
    }
    remark = next((one.remark for one in found if one.remark), "")
    runs = {key: records for one in found for key, records in one.runs.items()}
    return MethodResult(found[0].label, over_seeds(means), errors, remark, found[0].departures, runs)


def compare(
    published: PaperTable,
    ours: Ours,
    columns: Sequence[StreamPart] = (),
    *,
    by_value: bool,
    reduced: bool = False,
    remarks: Sequence[str] = (),
) -> PaperComparison:
    """Ours compared with the paper's, row by row."""
    rows = [row for row in published.rows if row.title in ours]
    counted = {row.title: row for row in rows if ours[row.title].mean is not None and not ours[row.title].remark}
    means = {title: value for title in counted if (value := ours[title].mean) is not None}
    papers = {title: row.mean for title, row in counted.items()}
    judged = order(papers, means, _level(ours, lambda record: record.domain not in published.setup.unlike))
    ranks = (ranking(papers), ranking({title: value.mean for title, value in means.items()}))
    domains = [column for column in columns if any(column.name in row.errors for row in rows)]

    def order_in(column: StreamPart) -> dict[tuple[str, str], str]:
        name = column.name
        papers = {title: row.errors[name] for title, row in counted.items() if name in row.errors}
        means = {title: ours[title].errors[name] for title in counted if name in ours[title].errors}
        return order(papers, means, _level(ours, lambda record: record.domain == name))

    lines = []
    for row in rows:
        mine = ours[row.title]
        mean = _compared(row.mean, mine.mean, by_value)
        words = mine.remark or ("not complete" if mine.mean is None else _order_words(row.title, judged, ours))
        if row.title in counted and mean.ours and mean.difference is not None:
            words = f"{value_words(mean.difference, mean.ours.sd, row.sd, reduced=reduced)}; {words}"
        errors = {
            column.name: _compared(row.errors[column.name], mine.errors.get(column.name), by_value)
            for column in domains
            if column.name in row.errors
        }
        rank = (ranks[0][row.title], ranks[1][row.title]) if row.title in counted else None
        lines.append(ComparedMethod(mine.label, mean, row.sd, errors, rank, words))
    return PaperComparison(
        table=published.name,
        title=published.title,
        by_value=by_value,
        lines=tuple(lines),
        pairs=_count(judged),
        domains=tuple(domains),
        domain_pairs=tuple(_count(order_in(column)) for column in domains),
        remarks=tuple(remarks),
    )


def order(
    papers: Mapping[str, float], ours: Mapping[str, Value], level: Callable[[str, str], bool] = lambda *_: False
) -> dict[tuple[str, str], str]:
    """Every pair that both have, with different errors in the paper: kept, reversed or open.

    `level`: whether other samples might well reverse a pair.
    """
    judged = {}
    for one, other in combinations([title for title in papers if title in ours], 2):
        printed = round(papers[one] - papers[other], 1)
        if printed:
            found = ours[one].mean - ours[other].mean
            near = abs(found) <= max(chance(ours[one], ours[other]), ROUNDING) or level(one, other)
            judged[one, other] = OPEN if near else KEPT if found * printed > 0 else REVERSED
    return judged


def _level(ours: Ours, counts: Callable[[Record], bool]) -> Callable[[str, str], bool]:
    """Whether the interval over batches of two rows' difference includes 0, in the records that count."""

    def level(one: str, other: str) -> bool:
        left, right = ours[one].runs, ours[other].runs
        pairs = [tuple(list(filter(counts, runs[key])) for runs in (left, right)) for key in left if key in right]
        found = interval_over_batches([(own, baseline) for own, baseline in pairs])
        return found is not None and found[0] <= 0 <= found[1]

    return level


def ranking(means: Mapping[str, float]) -> dict[str, int]:
    """1 is the lowest error as printed; equal ones share a rank."""
    shown = {title: round(mean, 1) for title, mean in means.items()}
    return {title: 1 + sum(other < value for other in shown.values()) for title, value in shown.items()}


def value_words(difference: float, *spreads: float | None, reduced: bool = False) -> str:
    """How far our mean is from the paper's, in words. At reduced size, no spread tells whether that is far."""
    distance = abs(difference)
    side = "as printed" if distance <= ROUNDING else f"{'higher' if difference > 0 else 'lower'} by {distance:.1f}"
    known = [sd for sd in spreads if sd is not None]
    if reduced:
        return f"{side}, reduced size"
    if distance <= ROUNDING:
        return side
    if not known:
        return f"{side}, spread not known"
    spread, beyond = math.hypot(*known), distance - ROUNDING  # the paper's number is rounded
    if beyond > 2 * spread:
        return f"{side}, beyond 2 sd"
    return "within 1 sd" if beyond <= spread else "within 2 sd"


def other_setup(
    published: PaperTable, errors: ErrorTable, model: Mapping[str, Any], domains: Sequence[Sequence[Any]]
) -> list[str]:
    """Why values cannot be compared: other data, another model, other domains. Empty if they can."""
    setup = published.setup
    used = model.get("factory") or model.get("name")
    wanted = next((list(row.errors) for row in published.rows if row.errors), None)
    found = [str(name) for name, _ in domains]
    if published.any_order:
        wanted, found = sorted(next(iter(paper.orders().values()))), sorted(found)
    graded = all(severity in (0, 5) for _, severity in domains)
    reasons = []
    if errors.dataset != setup.dataset:
        reasons.append(f"other data ({errors.dataset}, not {setup.dataset})")
    if used != setup.model:
        reasons.append(f"another model ({used}, not {setup.model})")
    if not graded or (wanted is not None and found != wanted):
        reasons.append("other domains, or another order of them")
    return reasons


def _ours(published: PaperTable, results: Results, table: ErrorTable, number: int) -> dict[str, MethodResult]:
    """The rows of run `number` by the title of the paper's row that they match; of several, that with the fewest
    departures."""
    run, setup = results.run, published.setup
    cells = {cell.label: cell for cell in reversed(run.cells)}
    entries = run.experiment.get("methods") or ()
    stored = [entry for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("fields"), Mapping)]
    settings = {str(entry.get("name", entry.get("label"))): entry["fields"] for entry in stored}
    made = {}
    for row in published.rows:
        fitting = []
        for mine in table.rows:
            cell = cells[mine.label]
            if cell.method == row.method and all(cell.config.get(name) == value for name, value in row.fields.items()):
                said = settings.get(mine.label, {})
                changed = [f"{name} {value}" for name, value in said.items() if name not in row.fields]
                other = "+" in cell.preset or (table.dataset == setup.dataset and cell.preset != setup.preset)
                fitting.append((mine, (*([f"preset {cell.preset}"] if other else []), *changed)))
        if fitting:
            mine, departures = min(fitting, key=lambda pair: len(pair[1]))
            mean = _mean_without(results, mine.label, setup.unlike) if setup.unlike else mine.mean
            errors = {column.name: value for column, value in zip(table.columns, mine.errors, strict=True) if value}
            runs = {(number, one.cell.seed): one.records for one in results.by_label()[mine.label] if one.done}
            made[row.title] = MethodResult(mine.label, mean, errors, mine.remark, departures, runs)
    return made


def _mean_without(results: Results, label: str, unlike: Sequence[str]) -> Value | None:
    """The error of complete method runs over all domains but some."""
    runs = [one.records for one in results.by_label()[label] if one.done]
    compared = [[record for record in records if record.domain not in unlike] for records in runs]
    return over_seeds(total_error(found) for found in compared if any(r.scored for r in found))


def _remarks(
    published: PaperTable, run: Run, errors: ErrorTable, unlike: Sequence[str], ours: Ours, orders: int
) -> Iterator[str]:
    """What is compared and what departs from the paper, one sentence each."""
    setup, precision = published.setup, (run.experiment.get("execution") or {}).get("precision", "full")
    if unlike:
        words = ", ".join(unlike)
        yield f"{words[0].upper()}{words[1:]}: only the order is compared."
    else:
        if errors.images is not None and errors.images < setup.images:
            yield (
                f"Reduced size: {errors.images:,} of {setup.images:,} {errors.samples} per domain, so methods that "
                f"learn see less of the stream, and the spread over seeds does not cover the choice of "
                f"{errors.samples}."
            )
        if setup.batch is not None and errors.batch != setup.batch:
            yield f"Batch {errors.batch} instead of {setup.batch}."
        if errors.boundaries != "known":
            yield f"Domain boundaries {errors.boundaries}; the paper's are known."
        if precision != "full":
            yield f"Precision {precision}."
    if published.any_order and orders != len(paper.orders()):
        count = "One order" if orders == 1 else f"{orders} orders"
        yield f"{count} of the domains; the paper's numbers are means over ten."
    departures: dict[tuple[str, ...], list[str]] = {}
    for one in ours.values():
        departures.setdefault(one.departures, []).append(one.label)
    for settings, labels in departures.items():
        if settings:
            yield f"Not the paper's settings: {', '.join(labels)} ({', '.join(settings)})."
    if any(one.mean is not None and one.mean.seeds == 1 for one in ours.values()):
        yield "One seed: the verdicts allow for other samples, not for other seeds."
    if missing := [row.title for row in published.rows if row.title not in ours]:
        yield f"Not in this run: {', '.join(missing)}."
    yield from published.notes()


def _compared(printed: float, value: Value | None, by_value: bool) -> ComparedError:
    return ComparedError(printed, value, value.mean - printed if by_value and value is not None else None)


def _order_words(title: str, judged: Mapping[tuple[str, str], str], ours: Ours) -> str:
    """How a row ranks among the others."""
    mine = {other: verdict for pair, verdict in judged.items() if title in pair for other in pair if other != title}
    if not mine:
        return "nothing to rank it with"
    parts = []
    for verdict in (REVERSED, OPEN):
        if others := [ours[other].label for other, found in mine.items() if found == verdict]:
            parts.append(f"{verdict} with {', '.join(others)}")
    return "; ".join(parts) or "order kept"


def _count(judged: Mapping[tuple[str, str], str]) -> PairCounts:
    found = list(judged.values())
    return PairCounts(found.count(KEPT), found.count(REVERSED), found.count(OPEN))


# Tables


def tables(made: PaperComparison) -> list[Table]:
    """As printed: means, ranks and verdicts; then, if the paper has domains, differences or kept pairs by domain."""
    value = made.by_value
    heads = ["paper", "ours", *(["difference"] if value else []), "rank"]
    rows = []
    for line in made.lines:
        texts = [line.label, printed(Value(line.mean.paper, line.paper_sd, 1)), printed(line.mean.ours)]
        texts += [signed(line.mean.difference)] if value else []
        rows.append([*texts, _rank(line.rank) or ABSENT, line.verdict])
    caption = ("Mean error in %; a rank that differs is shown as paper → ours.", made.summary(), *made.remarks)
    columns = (TableColumn("", "name"), *map(TableColumn, heads), TableColumn("verdict", "words"))
    means = Table(columns, cells(rows), f"Comparison with the paper: {made.title}", caption)
    if not made.domains:
        return [means]
    title = "Difference from the paper, by domain" if value else "Pairs of methods in the paper's order, by domain"
    if value:
        lines = [line for line in made.lines if line.domains]
        rows = [[line.label, *(signed(line.domains[part.name].difference) for part in made.domains)] for line in lines]
    else:
        rows = [["pairs kept", *map(str, made.domain_pairs)]]
    columns = (TableColumn("", "name"), *(TableColumn(domain.short, full=domain.words) for domain in made.domains))
    return [means, Table(columns, cells(rows), title)]


def data(made: PaperComparison) -> Table:
    """For CSV: one line per row and domain, the mean last."""

    def line(method: ComparedMethod, domain: str, error: ComparedError) -> dict[str, object]:
        whole, ours = domain == "mean", error.ours
        return {
            "table": made.table,
            "label": method.label,
            "domain": domain,
            "paper": f"{error.paper:.2f}",
            "paper sd": formatted(method.paper_sd if whole else None, ".2f", ""),
            "ours": ours and f"{ours.mean:.2f}",
            "ours sd": ours and formatted(ours.sd, ".2f", ""),
            "difference": formatted(error.difference, ".2f", ""),
            "rank": _rank(method.rank) if whole else "",
            "verdict": method.verdict if whole else "",
        }

    pairs = ((one, pair) for one in made.lines for pair in (*one.domains.items(), ("mean", one.mean)))
    return data_table([line(one, *pair) for one, pair in pairs])


def _rank(rank: tuple[int, int] | None) -> str:
    if rank is None:
        return ""
    return str(rank[0]) if rank[0] == rank[1] else f"{rank[0]} → {rank[1]}"
