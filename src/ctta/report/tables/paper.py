"""A run beside the paper's table: for each row of the paper, its mean, ours, and what to make of it.

Values are compared where data, model, domains and their order are the paper's; else only the order of the methods is,
and no difference is shown. Whatever else is not as in the paper is said: size, batch, boundaries, settings. A spread is
one standard deviation, ours over seeds and the paper's over orders where it gives one.

A pair of rows is *kept* where ours are in the paper's order, *reversed* where they are not, and *open* where other
seeds might well turn it round: where the 95 % interval of the difference has 0 in it. Pairs that the paper prints as
equal are not judged.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from ctta import paper
from ctta.base.fileio import write_atomically
from ctta.paper import ROUNDING, PaperRow, PaperTable
from ctta.records.run_folder import RunFolder
from ctta.report.metrics import Value, chance, over_seeds
from ctta.report.tables import errors as tables
from ctta.report.tables.errors import ABSENT, Column, Row, Table

KEPT, OPEN, REVERSED = "kept", "open", "reversed"


@dataclass(frozen=True)
class Ours:
    """What a run has for one row of the paper."""

    label: str
    mean: Value | None
    errors: Mapping[str, Value] = field(default_factory=dict)  # by domain
    remark: str = ""  # why its mean does not count: it is not complete, or not valid
    departures: tuple[str, ...] = ()  # settings that are not the paper's


@dataclass(frozen=True)
class Entry:
    """One number of the paper and ours."""

    paper: float
    ours: Value | None
    difference: float | None  # ours less the paper's; none where values are not compared


@dataclass(frozen=True)
class Line:
    """One row of the paper and ours."""

    label: str
    mean: Entry
    paper_sd: float | None
    domains: Mapping[str, Entry]
    rank: tuple[int, int] | None  # among the rows that count, the paper's and ours
    verdict: str


@dataclass(frozen=True)
class Pairs:
    """How many pairs of rows are in the paper's order."""

    kept: int
    reversed: int
    open: int

    @property
    def told(self) -> int:
        """All pairs that the paper tells apart."""
        return self.kept + self.reversed + self.open

    def __str__(self) -> str:
        return f"{self.kept}/{self.told}" if self.told else ABSENT


@dataclass(frozen=True)
class Comparison:
    """A run beside a table of the paper."""

    table: str
    title: str
    by_value: bool  # else by order alone
    lines: tuple[Line, ...]
    pairs: Pairs
    domains: tuple[Column, ...]  # those that both have
    domain_pairs: tuple[Pairs, ...]  # one a domain
    remarks: tuple[str, ...]

    def summary(self) -> str:
        """One sentence."""
        if not self.pairs.told:
            return "There are no two rows to compare."
        rest = [f"{n} {word}" for n, word in ((self.pairs.reversed, REVERSED), (self.pairs.open, OPEN)) if n]
        judged = f"{self.pairs.kept} of {self.pairs.told} pairs of methods are in the paper's order"
        return ", ".join([judged, *rest]) + "."


# Building


def build(*folders: RunFolder) -> Comparison | None:
    """From a run folder, complete or not; none unless its experiment names a table of the paper.

    Several folders are one experiment with its domains in several orders: each counts once, with its mean over seeds.
    """
    run, table = folders[0].run(), tables.build(folders[0])
    name = run.experiment.get("paper")
    if name is None:
        return None
    printed = paper.table(name)
    strange = other_world(printed, table, run.experiment.get("model") or {}, run.stream["domains"])
    every = [_ours(printed, folder, tables.build(folder)) for folder in folders]
    ours = {title: pooled([found[title] for found in every if title in found]) for title in every[0]}
    missing = [row.title for row in printed.rows if row.title not in ours]
    remarks = [
        *_scope(strange, printed, table, run.experiment.get("execution") or {}),
        *_orders(printed, len(folders)),
        *_departures(ours.values()),
        *_alone(ours.values()),
        *([f"Not in this run: {', '.join(missing)}."] if missing else []),
        *printed.notes(),
    ]
    reduced = not strange and table.images is not None and table.images < printed.setup.images
    columns = table.columns if table.by_stretch else ()
    return compare(printed, ours, columns, by_value=not strange, reduced=reduced, remarks=remarks)


def pooled(found: Sequence[Ours]) -> Ours:
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
    return Ours(found[0].label, over_seeds(means), errors, remark, found[0].departures)


def compare(
    printed: PaperTable,
    ours: Mapping[str, Ours],  # by the title of the paper's row
    columns: Sequence[Column] = (),
    *,
    by_value: bool,
    reduced: bool = False,
    remarks: Sequence[str] = (),
) -> Comparison:
    """Numbers beside numbers."""
    rows = [row for row in printed.rows if row.title in ours]
    counted = {row.title: row for row in rows if ours[row.title].mean is not None and not ours[row.title].remark}
    means = {title: value for title in counted if (value := ours[title].mean) is not None}
    papers = {title: row.mean for title, row in counted.items()}
    judged = order(papers, means)
    ranks = (ranking(papers), ranking({title: value.mean for title, value in means.items()}))
    labels = {title: ours[title].label for title in ours}
    domains = [column for column in columns if any(column.name in row.errors for row in rows)]
    lines = []
    for row in rows:
        mine = ours[row.title]
        beside = _entry(row.mean, mine.mean, by_value)
        words = mine.remark or ("not complete" if mine.mean is None else _order_words(row.title, judged, labels))
        if by_value and row.title in counted:
            words = f"{value_words(beside, row.sd, reduced=reduced)}; {words}"
        errors = {
            column.name: _entry(row.errors[column.name], mine.errors.get(column.name), by_value)
            for column in domains
            if column.name in row.errors
        }
        rank = (ranks[0][row.title], ranks[1][row.title]) if row.title in counted else None
        lines.append(Line(mine.label, beside, row.sd, errors, rank, words))
    return Comparison(
        table=printed.name,
        title=printed.title,
        by_value=by_value,
        lines=tuple(lines),
        pairs=_count(judged),
        domains=tuple(domains),
        domain_pairs=tuple(_count(_domain_order(column.name, counted.values(), ours)) for column in domains),
        remarks=tuple(remarks),
    )


def order(papers: Mapping[str, float], ours: Mapping[str, Value]) -> dict[tuple[str, str], str]:
    """Every pair that the paper tells apart: kept, reversed or open."""
    judged = {}
    for one, other in combinations(papers, 2):
        printed = round(papers[one] - papers[other], 1)
        if printed:
            found = ours[one].mean - ours[other].mean
            near = abs(found) <= max(chance(ours[one], ours[other]), ROUNDING)
            judged[one, other] = OPEN if near else KEPT if found * printed > 0 else REVERSED
    return judged


def ranking(means: Mapping[str, float]) -> dict[str, int]:
    """1 is the lowest error as printed; equal ones share a rank."""
    shown = {title: round(mean, 1) for title, mean in means.items()}
    return {title: 1 + sum(other < value for other in shown.values()) for title, value in shown.items()}


def value_words(mean: Entry, paper_sd: float | None, *, reduced: bool = False) -> str:
    """How far our mean is from the paper's, in words; at reduced size no spread says whether that is far."""
    assert mean.ours is not None
    assert mean.difference is not None
    distance = abs(mean.difference)
    side = "as printed" if distance <= ROUNDING else f"{'higher' if mean.difference > 0 else 'lower'} by {distance:.1f}"
    known = [sd for sd in (mean.ours.sd, paper_sd) if sd is not None]
    if reduced:
        return f"{side}, reduced size"
    if distance <= ROUNDING:
        return side
    if not known:
        return f"{side}, spread not known"
    spread, beyond = math.hypot(*known), distance - ROUNDING  # the paper's number is rounded
    within = next((f"within {limit} sd" for limit in (1, 2) if beyond <= limit * spread), "")
    return within or f"{side}, beyond 2 sd"


def other_world(
    printed: PaperTable, table: Table, model: Mapping[str, Any], domains: Sequence[Sequence[Any]]
) -> list[str]:
    """Why values do not compare: other data, another model, other domains. Empty if they do."""
    setup = printed.setup
    used = model.get("factory") or model.get("name")
    wanted = next((list(row.errors) for row in printed.rows if row.errors), None)
    found = [str(name) for name, _ in domains]
    if printed.any_order:
        wanted, found = sorted(next(iter(paper.orders().values()))), sorted(found)
    graded = all(severity in (0, 5) for _, severity in domains)
    reasons = []
    if table.dataset != setup.dataset:
        reasons.append(f"other data ({table.dataset}, not {setup.dataset})")
    if used != setup.model:
        reasons.append(f"another model ({used}, not {setup.model})")
    if not graded or (wanted is not None and found != wanted):
        reasons.append("other domains, or another order of them")
    return reasons


def _ours(printed: PaperTable, folder: RunFolder, table: Table) -> dict[str, Ours]:
    """The run's rows by the title of the paper's that they mean; of several, the one with the fewest departures."""
    run, setup = folder.run(), printed.setup
    cells = {cell.label: cell for cell in reversed(run.cells)}
    settings = {str(entry.get("name")): entry.get("fields") or {} for entry in run.experiment.get("methods") or ()}
    made = {}
    for row in printed.rows:
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
            mean = _mean_without(folder, mine, setup.unlike) if setup.unlike else mine.mean
            errors = {column.name: value for column, value in zip(table.columns, mine.errors, strict=True) if value}
            made[row.title] = Ours(mine.label, mean, errors, mine.remark, departures)
    return made


def _mean_without(folder: RunFolder, row: Row, unlike: Sequence[str]) -> Value | None:
    """The error of complete cells over all domains but some."""
    errors = []
    for cell in folder.run().cells:
        if cell.label == row.label and folder.done(cell.cell):
            records = [record for record in folder.records(cell.cell) if record.domain not in unlike]
            if records and all(record.wrong >= 0 for record in records):
                errors.append(100 * sum(record.wrong for record in records) / sum(record.n for record in records))
    return over_seeds(errors)


def _scope(strange: Sequence[str], printed: PaperTable, table: Table, execution: Mapping[str, Any]) -> list[str]:
    """What is compared, and on what it was measured."""
    if strange:
        words = ", ".join(strange)
        return [f"{words[0].upper()}{words[1:]}: only the order is compared."]
    setup, said = printed.setup, []
    if table.images is not None and table.images < setup.images:
        said.append(
            f"Reduced size: {table.images:,} of {setup.images:,} {table.samples} a domain, so methods that learn see "
            f"less of the stream, and the spread over seeds does not cover the choice of {table.samples}."
        )
    if setup.batch is not None and table.batch != setup.batch:
        said.append(f"Batch {table.batch} instead of {setup.batch}.")
    if table.boundaries != "known":
        said.append(f"Domain boundaries {table.boundaries}; the paper's are known.")
    if execution.get("precision", "full") != "full":
        said.append(f"Precision {execution['precision']}.")
    return said


def _orders(printed: PaperTable, count: int) -> list[str]:
    """That the paper's numbers are means over more orders than ours."""
    if not printed.any_order or count == len(paper.orders()):
        return []
    ours = "One order of the domains" if count == 1 else f"{count} orders of the domains"
    return [f"{ours}; the paper's numbers are means over ten."]


def _departures(ours: Iterable[Ours]) -> list[str]:
    """Rows with the same departures in one sentence."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for one in ours:
        if one.departures:
            labels.setdefault(one.departures, []).append(one.label)
    return [f"Not the paper's settings: {', '.join(found)} ({', '.join(said)})." for said, found in labels.items()]


def _alone(ours: Iterable[Ours]) -> list[str]:
    """That nothing is known of the spread."""
    alone = any(one.mean is not None and one.mean.sd is None for one in ours)
    return ["One seed: what lies close together may do so by chance."] if alone else []


def _entry(printed: float, value: Value | None, by_value: bool) -> Entry:
    return Entry(printed, value, value.mean - printed if by_value and value is not None else None)


def _domain_order(name: str, rows: Iterable[PaperRow], ours: Mapping[str, Ours]) -> dict[tuple[str, str], str]:
    there = [row for row in rows if name in row.errors and name in ours[row.title].errors]
    return order(
        {row.title: row.errors[name] for row in there}, {row.title: ours[row.title].errors[name] for row in there}
    )


def _order_words(title: str, judged: Mapping[tuple[str, str], str], labels: Mapping[str, str]) -> str:
    """How a row stands to the others."""
    mine = {other: verdict for pair, verdict in judged.items() if title in pair for other in pair if other != title}
    if not mine:
        return "nothing to rank it with"
    parts = []
    for verdict in (REVERSED, OPEN):
        if others := [labels[other] for other, found in mine.items() if found == verdict]:
            parts.append(f"{verdict} with {', '.join(others)}")
    return "; ".join(parts) or "order kept"


def _count(judged: Mapping[tuple[str, str], str]) -> Pairs:
    found = list(judged.values())
    return Pairs(found.count(KEPT), found.count(REVERSED), found.count(OPEN))


# Rendering


def grid(comparison: Comparison) -> list[list[str]]:
    """Head and rows as printed."""
    head = ["", "paper", "ours", *(["difference"] if comparison.by_value else []), "rank", "verdict"]
    lines = [head]
    for line in comparison.lines:
        printed = str(Value(line.mean.paper, line.paper_sd, 1))
        ours = ABSENT if line.mean.ours is None else str(line.mean.ours)
        difference = [signed(line.mean.difference)] if comparison.by_value else []
        lines.append([line.label, printed, ours, *difference, _rank(line.rank), line.verdict])
    return lines


def domain_grid(comparison: Comparison) -> list[list[str]]:
    """By domain: differences, a line a method; else pairs in the paper's order. Empty where the paper has none."""
    if not comparison.domains:
        return []
    head = ["", *(column.short for column in comparison.domains)]
    if not comparison.by_value:
        return [head, ["pairs kept", *map(str, comparison.domain_pairs)]]
    lines = [
        [line.label, *(signed(line.domains[column.name].difference) for column in comparison.domains)]
        for line in comparison.lines
        if line.domains
    ]
    return [head, *lines]


def signed(value: float | None) -> str:
    """+0.3, −1.2; nothing is 0.0."""
    if value is None:
        return ABSENT
    return "0.0" if round(value, 1) == 0 else f"{value:+.1f}".replace("-", "−")


def _rank(rank: tuple[int, int] | None) -> str:
    if rank is None:
        return ABSENT
    return str(rank[0]) if rank[0] == rank[1] else f"{rank[0]} → {rank[1]}"


def caption(comparison: Comparison) -> list[str]:
    """Sentences that belong below."""
    what = "Mean error in %; a rank that changed is shown as paper → ours."
    return [what, comparison.summary(), *comparison.remarks]


def to_rich(comparison: Comparison) -> Group:
    """For the terminal: means and verdicts."""
    head, *lines = grid(comparison)
    rich = RichTable(box=SIMPLE, padding=(0, 1, 0, 0))
    for number, name in enumerate(head):
        words = number in (0, len(head) - 1)
        rich.add_column(Text(name), justify="left" if words else "right", no_wrap=number < len(head) - 1)
    for line in lines:
        rich.add_row(*(Text(text) for text in line))
    below = Text("\n".join(caption(comparison)), "italic")
    return Group(Text(f"Beside the paper: {comparison.title}", "italic"), rich, below)


def to_markdown(comparison: Comparison) -> str:
    """A heading, the table, differences by domain, and what has to be said."""
    parts = [f"## Beside the paper: {comparison.title}", "", *_markdown(grid(comparison), words=True), ""]
    if by_domain := domain_grid(comparison):
        parts += [f"{_domain_title(comparison)}:", "", *_markdown(by_domain, words=False), ""]
    return "\n".join([*parts, "  \n".join(caption(comparison)), ""])


def _markdown(lines: Sequence[Sequence[str]], *, words: bool) -> list[str]:
    count = len(lines[0])
    rule = "|---|" + "---:|" * (count - 2) + ("---|" if words else "---:|")
    texts = ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines]
    return [texts[0], rule, *texts[1:]]


def _domain_title(comparison: Comparison) -> str:
    return "Difference by domain" if comparison.by_value else "Pairs of methods in the paper's order, by domain"


def to_csv(comparison: Comparison) -> str:
    """One line a row and domain, the mean last."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("table", "label", "domain", "paper", "paper sd", "ours", "ours sd", "difference", "rank", "verdict")
    writer.writerow(names)
    for line in comparison.lines:
        for domain, entry in (*line.domains.items(), ("mean", line.mean)):
            whole = domain == "mean"
            value = entry.ours or Value(math.nan, None, 0)
            numbers = (entry.paper, line.paper_sd if whole else None, value.mean, value.sd, entry.difference)
            said = (_rank(line.rank).replace(ABSENT, ""), line.verdict) if whole else ("", "")
            writer.writerow([comparison.table, line.label, domain, *map(_plain, numbers), *said])
    return out.getvalue()


def _plain(number: float | None) -> str:
    return "" if number is None or math.isnan(number) else f"{number:.2f}"


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Plain data, unrounded."""
    return {**asdict(comparison), "summary": comparison.summary(), "unit": "percent error"}


def write(into: Path, *folders: RunFolder) -> Comparison | None:
    """`comparison.csv` and `comparison.json` of run folders, where there is one."""
    found = build(*folders)
    if found is not None:
        write_atomically(into / "comparison.csv", to_csv(found).encode())
        write_atomically(into / "comparison.json", json.dumps(to_json(found), indent=1).encode())
    return found
