"""From a run folder to the paper's table: methods down, domains across, the mean last.

Errors are in percent. The mean counts every sample once; domains of one size make it the mean of their errors, as the
paper has it. Seeds of one label become mean and standard deviation, never a best-of. A domain counts once it is
complete, and a mean once all domains are.

A stretch is what the stream shows between two changes. A column is a stretch; or, of a long stream in which domains
come again, all stretches of a domain. A stream that goes round has the error of each round too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder
from ctta.report import metrics
from ctta.report.metrics import Cost, Value, complete_domains, over_seeds

# The paper's column heads; a domain that is not listed is cut to five letters.
SHORT_NAMES: Mapping[str, str] = {
    "gaussian_noise": "gauss",
    "shot_noise": "shot",
    "impulse_noise": "impul",
    "defocus_blur": "defoc",
    "glass_blur": "glass",
    "motion_blur": "motn",
    "zoom_blur": "zoom",
    "brightness": "brit",
    "contrast": "contr",
    "elastic_transform": "elast",
    "pixelate": "pixel",
    "jpeg_compression": "jpeg",
    "gaussian_blur": "gblur",
    "distortion_rbf": "rbf",
    "distortion_rbf_inv": "rbf-i",
    "density_inc": "dens+",
    "density": "dens",
    "rotation": "rotat",
}
MOST = 20  # columns, unless there are more names
ABSENT = "–"
DAGGER = "†"  # beside methods that are not source-free


@dataclass(frozen=True)
class Column:
    """One stretch of the stream, or several that are counted together."""

    positions: tuple[int, ...]
    name: str
    short: str  # for heads where room is scarce
    title: str  # unlike any other column's


@dataclass(frozen=True)
class Row:
    """One label."""

    label: str
    method: str
    seeds: tuple[int, ...]
    errors: tuple[Value | None, ...]  # one a column
    mean: Value | None
    rounds: tuple[Value | None, ...]  # one a round
    cost: Cost
    status: str  # empty when all its cells are complete
    problems: tuple[str, ...]  # why the numbers are not valid; empty when they are
    traits: Mapping[str, Any]  # what the method needs and costs; empty where it is not known

    @property
    def dagger(self) -> str:
        """The mark of a method that uses source data; else empty."""
        return DAGGER if self.traits.get("source", "none") != "none" else ""

    @property
    def remark(self) -> str:
        """That it is running, or not valid, and why; else empty."""
        invalid = f"invalid: {'; '.join(self.problems)}" if self.problems else ""
        return ", ".join(part for part in (self.status, invalid) if part)


@dataclass(frozen=True)
class Table:
    """All labels of one run."""

    name: str
    identity: str
    dataset: str
    boundaries: str  # known, unknown or detected
    protocol: str  # how the stream is arranged, with its settings; empty where it is not known
    images: int | None  # a stretch; none where they differ
    samples: str  # what they are: images or clouds
    batch: int | None
    columns: tuple[Column, ...]
    stretches: tuple[Column, ...]  # the same, stretch by stretch
    rounds: tuple[Column, ...]  # of a stream that goes round; else empty
    rows: tuple[Row, ...]
    best: tuple[frozenset[str], ...]  # labels with the lowest error, one set a column and one for the mean
    labelled: bool  # whether the stream's labels are known; without them there are no errors

    @property
    def by_stretch(self) -> bool:
        """Whether each column is a single stretch."""
        return len(self.stretches) == len(self.columns)

    def row_of(self, method: str) -> Row | None:
        """The first row of a method."""
        return next((row for row in self.rows if row.method == method), None)

    def remarks(self) -> dict[str, str]:
        """What has to be said beside a label."""
        return {row.label: row.remark for row in self.rows if row.remark}

    def caption(self) -> str:
        """One sentence each: unit, boundaries, protocol, size, seeds, source data."""
        parts = [
            "Error in %, lower is better, best in bold." if self.labelled else "No labels: errors are not known.",
            f"Domain boundaries {self.boundaries}.",
        ]
        if self.protocol:
            parts.append(f"Protocol: {self.protocol}.")
        if not self.by_stretch:
            parts.append(f"{len(self.stretches)} stretches; a column counts all of a domain.")
        if self.images is not None:
            parts.append(f"{self.images:,} {self.samples} a {'domain' if self.by_stretch else 'stretch'}.")
        if self.batch is not None:
            parts.append(f"Batch {self.batch}.")
        if any(len(row.seeds) > 1 for row in self.rows):
            parts.append("Several seeds: mean ± standard deviation.")
        if any(row.dagger for row in self.rows):
            parts.append(f"{DAGGER} Uses source data.")
        return " ".join(parts)


# Building


@dataclass(frozen=True)
class Trial:
    """One cell with what it left."""

    cell: Cell
    records: tuple[Record, ...]
    done: Done | None


def build(folder: RunFolder) -> Table:
    """The table of a run folder, complete or not."""
    run = folder.run()
    stretches = _stretches(run)
    columns, rounds = _columns(stretches), _rounds(run, len(stretches))
    trials = read_trials(folder, run)
    shown = (columns, rounds, stretches)
    rows = tuple(_row(label, group, shown, run.stream.get("images")) for label, group in trials.items())
    known = [record.wrong >= 0 for group in trials.values() for trial in group for record in trial.records]
    return Table(
        name=run.name,
        identity=run.identity,
        dataset=str(run.stream.get("dataset", "")),
        boundaries=str(run.stream.get("boundaries", "not recorded")),
        protocol=_spelled(run.stream.get("protocol") or {}),
        images=run.stream.get("images"),
        samples=str(run.stream.get("samples", "images")),
        batch=run.stream.get("batch"),
        columns=columns,
        stretches=stretches,
        rounds=rounds,
        rows=rows,
        best=tuple(_best(rows, column) for column in range(len(columns) + 1)),
        labelled=any(known) or not known,
    )


def read_trials(folder: RunFolder, run: Run) -> dict[str, list[Trial]]:
    """All cells by label."""
    trials: dict[str, list[Trial]] = {}
    for cell in run.cells:
        trial = Trial(cell, tuple(folder.records(cell.cell)), folder.done(cell.cell))
        trials.setdefault(cell.label, []).append(trial)
    return trials


def _stretches(run: Run) -> tuple[Column, ...]:
    domains = [(str(name), int(severity)) for name, severity in run.stream["domains"]]
    graded = len({severity for _, severity in domains}) > 1
    seen: dict[str, int] = {}
    stretches = []
    for position, (name, severity) in enumerate(domains):
        grade = f" {severity}" if graded else ""
        seen[name + grade] = seen.get(name + grade, 0) + 1
        again = f" #{seen[name + grade]}" if seen[name + grade] > 1 else ""
        stretches.append(Column((position,), name, _short(name) + grade, name + grade + again))
    return tuple(stretches)


def _columns(stretches: Sequence[Column]) -> tuple[Column, ...]:
    """The stretches; if they are many, those of one name together."""
    if len(stretches) <= MOST:
        return tuple(stretches)
    positions: dict[str, tuple[int, ...]] = {}
    for stretch in stretches:
        positions[stretch.name] = positions.get(stretch.name, ()) + stretch.positions
    return tuple(Column(found, name, _short(name), name) for name, found in positions.items())


def _rounds(run: Run, stretches: int) -> tuple[Column, ...]:
    count = int((run.stream.get("protocol") or {}).get("rounds", 0))
    size = stretches // max(count, 1)
    return tuple(
        Column(tuple(range(turn * size, (turn + 1) * size)), f"round {turn + 1}", f"r{turn + 1}", f"round {turn + 1}")
        for turn in range(count)
    )


def _short(name: str) -> str:
    """The head of a column; a drift from one domain to another has both names."""
    return ">".join(SHORT_NAMES.get(part, part[:5]) for part in name.split(">"))


def _spelled(protocol: Mapping[str, Any]) -> str:
    """A protocol in words: its kind, and its settings where they are set."""
    kind, *settings = [(name, value) for name, value in protocol.items() if value is not None] or [("kind", "")]
    said = [
        f"{name} {'-'.join(map(str, value)) if isinstance(value, list | tuple) else value}" for name, value in settings
    ]
    return f"{kind[1]} ({', '.join(said)})" if said else str(kind[1])


def _row(label: str, trials: Sequence[Trial], shown: Sequence[Sequence[Column]], images: int | None) -> Row:
    counts = [metrics.stretch_counts(trial.records, trial.done, images) for trial in trials]
    columns, rounds, stretches = shown
    everything = tuple(position for stretch in stretches for position in stretch.positions)

    def over(positions: Sequence[int]) -> Value | None:
        return over_seeds(error for found in counts if (error := metrics.error(found, positions)) is not None)

    return Row(
        label=label,
        method=trials[0].cell.method,
        seeds=tuple(trial.cell.seed for trial in trials),
        errors=tuple(over(column.positions) for column in columns),
        mean=over(everything),
        rounds=tuple(over(column.positions) for column in rounds),
        cost=metrics.cost(
            [record for trial in trials for record in trial.records],
            [trial.done.peak_memory for trial in trials if trial.done],
        ),
        status=_status(trials, len(stretches), images),
        problems=_problems(trials),
        traits=trials[0].cell.traits,
    )


def _status(trials: Sequence[Trial], domains: int, images: int | None) -> str:
    if all(trial.done for trial in trials):
        return ""
    if not any(trial.records for trial in trials):
        return "waiting"
    if len(trials) > 1:
        return f"running, {sum(trial.done is not None for trial in trials)} of {len(trials)} seeds"
    return f"running, {len(complete_domains(trials[0].records, None, images))} of {domains} domains"


def _problems(trials: Sequence[Trial]) -> tuple[str, ...]:
    found = []
    for trial in trials:
        if trial.done is not None and not trial.done.valid:
            seed = f"seed {trial.cell.seed}: " if len(trials) > 1 else ""
            found += [seed + problem for problem in trial.done.problems or ("no reason given",)]
    return tuple(found)


def _best(rows: Sequence[Row], column: int) -> frozenset[str]:
    """Labels with the lowest error as printed, so ties share the mark; alone or not valid, none is best."""
    values = {row.label: (*row.errors, row.mean)[column] for row in rows if not row.problems}
    printed = {label: round(value.mean, 1) for label, value in values.items() if value is not None}
    if len(printed) < 2:
        return frozenset()
    return frozenset(label for label, value in printed.items() if value == min(printed.values()))


# Rendering


def needs(traits: Mapping[str, Any]) -> dict[str, str]:
    """What a method needs and costs, in words: passes a batch, answer before or after its update, source data."""

    def span(name: str) -> str:
        low, high = traits[name]
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    return {
        "learns": traits["learns"],
        "forward": span("forwards"),
        "backward": span("backwards"),
        "answer": ABSENT if traits["learns"] == "nothing" else traits["answers"],
        "source": traits["source"],
        "boundaries": "used" if traits["boundaries"] else ABSENT,
    }


@dataclass(frozen=True)
class _Shown:
    """One printed cell."""

    text: str
    best: bool = False


COSTS: tuple[tuple[str, Callable[[Cost], float | None], str], ...] = (
    ("s/batch", lambda cost: cost.seconds, ".3g"),
    ("images/s", lambda cost: cost.images_per_second, ".0f"),
    ("MB", lambda cost: cost.memory, ".0f"),
    ("views", lambda cost: cost.views, ".3g"),
)


def to_rich(table: Table, width: int = 120) -> RichTable:
    """For the terminal, the fullest layout that fits: a narrow one has the domains down, the narrowest no domains."""
    layouts = [
        _rich(table, spread=True, costs=True),
        _rich(table, spread=True, costs=False),
        _rich(table, spread=False, costs=False),
        _rich(table, spread=True, costs=True, transposed=True),
        _rich(table, spread=False, costs=True, transposed=True),
        _rich(replace(table, columns=(), rounds=()), spread=True, costs=True),
        _rich(replace(table, columns=(), rounds=()), spread=True, costs=False),
    ]
    console = Console(width=10_000)
    fitting = (rich for rich in layouts if Measurement.get(console, console.options, rich).maximum <= width)
    return next(fitting, layouts[-1])


def _rich(table: Table, *, spread: bool, costs: bool, transposed: bool = False) -> RichTable:
    grid = _grid(table, spread=spread, costs=costs)
    if transposed:
        grid = [list(column) for column in zip(*grid, strict=True)]
    title = " · ".join(part for part in (table.name, table.dataset) if part)
    rich = RichTable(
        title=Text(title), caption=Text(_footnotes(table)), caption_justify="left", box=SIMPLE, padding=(0, 1, 0, 0)
    )
    for column, head in enumerate(grid[0]):
        rich.add_column(Text(head.text), justify="right" if column else "left", no_wrap=True)
    for line in grid[1:]:
        if line[0].text in ("mean", COSTS[0][0]):
            rich.add_section()
        rich.add_row(*(Text(shown.text, "bold" if shown.best else "") for shown in line))
    return rich


def _grid(table: Table, *, spread: bool, costs: bool) -> list[list[_Shown]]:
    """Head and rows as printed. Without `spread`, only the mean keeps its standard deviation."""
    errors, rounds = (table.columns, table.rounds) if table.labelled else ((), ())
    wanted = [cost for cost in COSTS if costs and any(cost[1](row.cost) is not None for row in table.rows)]
    head = [
        "",
        *(column.short for column in errors),
        *(["mean"] if table.labelled else []),
        *(column.short for column in rounds),
        *(cost[0] for cost in wanted),
    ]
    marks = _marks(table)
    lines = [[_Shown(text) for text in head]]
    for row in table.rows:
        line = [_Shown(row.label + row.dagger + marks.get(row.label, ""))]
        for _, value, best in zip(errors, row.errors, table.best, strict=False):
            line.append(_Shown(_printed(value, spread), row.label in best))
        if table.labelled:
            line.append(_Shown(_printed(row.mean, True), row.label in table.best[-1]))
        line += [_Shown(_printed(value, spread)) for _, value in zip(rounds, row.rounds, strict=False)]
        lines.append(line + [_Shown(_number(read(row.cost), style)) for _, read, style in wanted])
    return lines


def _printed(value: Value | None, spread: bool) -> str:
    return ABSENT if value is None else str(value if spread else replace(value, sd=None))


def _number(value: float | None, style: str) -> str:
    return ABSENT if value is None else format(value, style)


def _marks(table: Table) -> dict[str, str]:
    """A number a remark; labels of which the same is said share it."""
    numbers = {said: number for number, said in enumerate(dict.fromkeys(table.remarks().values()), start=1)}
    return {label: f" [{numbers[said]}]" for label, said in table.remarks().items()}


def _footnotes(table: Table) -> str:
    marks = _marks(table)
    notes = dict.fromkeys(f"{marks[label].strip()} {said}" for label, said in table.remarks().items())
    return "\n".join([table.caption(), *notes])


def to_markdown(table: Table) -> str:
    """A Markdown table, the best in bold, with its caption below."""
    head, *lines = _grid(table, spread=True, costs=True)

    def line(cells: Iterable[_Shown]) -> str:
        texts = (cell.text.replace("|", "\\|") for cell in cells)
        marked = (f"**{text}**" if cell.best else text for text, cell in zip(texts, cells, strict=True))
        return "| " + " | ".join(marked) + " |"

    rule = "|---|" + "---:|" * (len(head) - 1)
    return "\n".join(
        [line(head), rule, *(line(cells) for cells in lines), "", _footnotes(table).replace("\n", "  \n"), ""]
    )


def to_csv(table: Table) -> str:
    """One line a label; errors with one decimal, standard deviations in columns of their own where there are any."""
    spread = any(len(row.seeds) > 1 for row in table.rows)
    titles = [column.title for column in table.columns] + ["mean"] + [column.title for column in table.rounds]
    titles = titles if table.labelled else []
    sds = [f"{title} sd" for title in titles] if spread else []
    tail = [
        "boundaries",
        "protocol",
        "images_per_domain",
        "batch",
        "seconds_per_batch",
        "images_per_second",
        "peak_memory_mb",
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", "method", "seeds", *titles, *sds, *tail, "views", "source_data", "status", "problems"])
    for row in table.rows:
        values = [*row.errors, row.mean, *row.rounds] if table.labelled else []
        means = ["" if value is None else f"{value.mean:.1f}" for value in values]
        spreads = ["" if value is None or value.sd is None else f"{value.sd:.2f}" for value in values] if spread else []
        size = [table.boundaries, table.protocol, table.images, table.batch]
        costs = [row.cost.seconds, row.cost.images_per_second, row.cost.memory, row.cost.views]
        plain = ["" if cost is None else f"{cost:.4g}" for cost in costs]
        status = row.status or ("invalid" if row.problems else "complete")
        said = [row.traits.get("source", ""), status, "; ".join(row.problems)]
        writer.writerow([row.label, row.method, " ".join(map(str, row.seeds)), *means, *spreads, *size, *plain, *said])
    return out.getvalue()


def to_json(table: Table) -> dict[str, Any]:
    """Plain data, unrounded; `best` names the labels of each column, the mean last."""
    return {**asdict(table), "best": [sorted(labels) for labels in table.best], "unit": "percent error"}
