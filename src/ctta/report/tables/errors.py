"""Errors by method and domain, as in the paper's tables: one row per method, one column per domain, the mean last.

Errors are in percent. The mean counts every sample once; with domains of equal size it is the mean of their errors, as
in the paper. Several seeds become mean and standard deviation, never the best of them. A domain counts once it is
complete, and a mean once all domains are.

A segment is the part of the stream between two changes of domain. A column is a segment; or, in a long stream in which
domains come again, all segments of a domain. A recurring stream also has the error of each round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctta.records.run_folder import Run
from ctta.report import metrics
from ctta.report.metrics import Cost, Value, over_seeds
from ctta.report.results import MethodRun, Results
from ctta.report.tables import render
from ctta.report.tables.render import ABSENT, Table, TableCell, TableColumn, formatted, printed

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
MOST = 20  # columns; a longer stream has one column per domain
VARIED = {
    "method": "the method's own draws",
    "order": "the order of the samples",
    "samples": "which samples are used",
}
DAGGER = "†"  # marks methods that use source data


@dataclass(frozen=True)
class StreamPart:
    """One segment of the stream, or several that are counted together."""

    positions: tuple[int, ...]
    name: str
    short: str  # for column heads
    title: str  # unlike that of any other part

    @property
    def words(self) -> str:
        """Its title as a reader would write it."""
        return self.title.replace("_", " ").replace(">", " → ")


Parts = tuple[StreamPart, ...]


class Outcome:
    """A row of which not all may be complete, or valid."""

    status: str
    problems: tuple[str, ...]

    @property
    def remark(self) -> str:
        """That it is not complete, or not valid, and why; else empty."""
        invalid = f"invalid: {'; '.join(self.problems)}" if self.problems else ""
        return ", ".join(part for part in (self.status, invalid) if part)

    def outcome(self) -> dict[str, str]:
        """For CSV: complete, invalid, or how far it is; and why it is not valid."""
        status = self.status or ("invalid" if self.problems else "complete")
        return {"status": status, "problems": "; ".join(self.problems)}


@dataclass(frozen=True)
class MethodErrors(Outcome):
    """One row: a method, over its seeds."""

    label: str
    method: str
    seeds: tuple[int, ...]
    errors: tuple[Value | None, ...]  # one per column
    mean: Value | None
    rounds: tuple[Value | None, ...]  # one per round
    cost: Cost
    status: str  # empty if all seeds are complete
    problems: tuple[str, ...]  # why the numbers are not valid; empty if they are
    traits: Mapping[str, Any]  # what the method needs and costs; empty if it is not known
    fixed: bool = False  # whether no seed changes anything; there is no standard deviation then

    @property
    def dagger(self) -> str:
        """The mark of a method that uses source data; else empty."""
        return DAGGER if self.traits.get("source", "none") != "none" else ""


@dataclass(frozen=True)
class ErrorTable:
    """All methods of one run."""

    name: str
    identity: str
    dataset: str
    boundaries: str  # known, unknown or detected
    protocol: str  # how the stream is arranged, with its settings; empty if it is not known
    images: int | None  # per segment; none if segments differ in size
    samples: str  # what they are: images or point clouds
    batch: int | None
    columns: Parts
    segments: Parts  # the whole stream, one by one
    rounds: Parts  # of a recurring stream; else empty
    rows: tuple[MethodErrors, ...]
    best: tuple[frozenset[str], ...]  # labels with the lowest error, one set per column and one for the mean
    labelled: bool  # whether the stream's labels are known; without them there are no errors
    vary: tuple[str, ...] = ("method",)  # what seeds move

    @property
    def best_rounds(self) -> tuple[frozenset[str], ...]:
        """Labels with the lowest error of each round."""
        valid = [row for row in self.rows if not row.problems]
        return tuple(lowest({row.label: row.rounds[turn] for row in valid}) for turn in range(len(self.rounds)))

    @property
    def by_segment(self) -> bool:
        """Whether each column is a single segment."""
        return len(self.segments) == len(self.columns)

    @property
    def unit(self) -> str:
        """What `images` counts: "images per domain"."""
        return f"{self.samples} per {'domain' if self.by_segment else 'segment'}"

    @property
    def rate(self) -> str:
        """The unit of the throughput."""
        return f"{'images' if self.samples == 'images' else 'samples'}/s"

    @property
    def several_seeds(self) -> bool:
        return any(len(row.seeds) > 1 for row in self.rows)

    @property
    def varied(self) -> str:
        """What seeds move, in words."""
        return " and ".join(VARIED.get(one, one) for one in self.vary)

    def row_of(self, method: str) -> MethodErrors | None:
        """The first row of a method."""
        return next((row for row in self.rows if row.method == method), None)

    def caption(self) -> str:
        """One sentence each: unit, boundaries, protocol, size, seeds, source data."""
        sentences = {
            "Error in %, lower is better, best in bold.": self.labelled,
            "No labels: errors are not known.": not self.labelled,
            f"Domain boundaries {self.boundaries}.": True,
            f"Protocol: {self.protocol}.": self.protocol,
            f"{len(self.segments)} segments; a column counts all segments of a domain.": not self.by_segment,
            f"{self.images or 0:,} {self.unit}.": self.images is not None,
            f"Batch {self.batch}.": self.batch is not None,
            "Several seeds: mean ± standard deviation.": self.several_seeds,
            f"Seeds vary {self.varied}.": self.several_seeds,
            "No ±: the same for every seed.": any(row.fixed for row in self.rows),
            f"{DAGGER} Uses source data.": any(row.dagger for row in self.rows),
        }
        return " ".join(words for words, holds in sentences.items() if holds)


# Building


def build(results: Results) -> ErrorTable:
    """Errors of a run, complete or not."""
    run = results.run
    segments = _segments(run)
    columns, rounds = _columns(segments), _rounds(run, len(segments))
    images = run.stream.get("images")
    rows = tuple(_row(runs, columns, rounds, len(segments), images) for runs in results.by_label().values())
    valid = [row for row in rows if not row.problems]
    known = [record.scored > 0 for one in results.method_runs for record in one.records]
    return ErrorTable(
        name=run.name,
        identity=run.identity,
        dataset=str(run.stream.get("dataset", "")),
        boundaries=results.boundaries,
        protocol=_spelled(run.stream.get("protocol") or {}),
        images=images,
        samples="point clouds" if run.stream.get("samples") == "clouds" else "images",
        batch=run.stream.get("batch"),
        columns=columns,
        segments=segments,
        rounds=rounds,
        rows=rows,
        best=tuple(
            lowest({row.label: (*row.errors, row.mean)[column] for row in valid}) for column in range(len(columns) + 1)
        ),
        labelled=any(known) or not known,
        vary=tuple(run.experiment.get("vary") or ("method",)),
    )


def _segments(run: Run) -> Parts:
    domains = [(str(name), int(severity)) for name, severity in run.stream["domains"]]
    graded = len({severity for _, severity in domains}) > 1
    titles: list[str] = []
    segments = []
    for position, (name, severity) in enumerate(domains):
        grade = f" {severity}" if graded else ""
        before = titles.count(name + grade)
        titles.append(name + grade)
        title = f"{name}{grade} #{before + 1}" if before else name + grade
        segments.append(StreamPart((position,), name, _short(name) + grade, title))
    return tuple(segments)


def _columns(segments: Parts) -> Parts:
    """The segments; if they are many, those of one name together."""
    if len(segments) <= MOST:
        return segments
    positions: dict[str, tuple[int, ...]] = {}
    for segment in segments:
        positions[segment.name] = positions.get(segment.name, ()) + segment.positions
    return tuple(StreamPart(found, name, _short(name), name) for name, found in positions.items())


def _rounds(run: Run, segments: int) -> Parts:
    count = int((run.stream.get("protocol") or {}).get("rounds", 0))
    size = segments // max(count, 1)
    return tuple(
        StreamPart(tuple(range((turn - 1) * size, turn * size)), f"round {turn}", f"r{turn}", f"round {turn}")
        for turn in range(1, count + 1)
    )


def _short(name: str) -> str:
    """The head of a column; a drift from one domain to another has both names."""
    return ">".join(SHORT_NAMES.get(part, part[:5]) for part in name.split(">"))


def _spelled(protocol: Mapping[str, Any]) -> str:
    """A protocol in words: its kind, and its settings if they are set."""
    kind, *settings = [(name, value) for name, value in protocol.items() if value is not None] or [("kind", "")]
    said = [f"{name} {'-'.join(map(str, v)) if isinstance(v, list | tuple) else v}" for name, v in settings]
    return f"{kind[1]} ({', '.join(said)})" if said else str(kind[1])


def _row(runs: Sequence[MethodRun], columns: Parts, rounds: Parts, segments: int, images: int | None) -> MethodErrors:
    counts = [metrics.segment_counts(one.records, one.done, images) for one in runs]
    outcomes = {tuple(sorted(found.items())) for found in counts}
    fixed = len(outcomes) == 1 < len(runs) and all(one.done for one in runs)

    def over(positions: Sequence[int]) -> Value | None:
        value = over_seeds(error for found in counts if (error := metrics.error(found, positions)) is not None)
        return replace(value, sd=None) if value and fixed else value

    return MethodErrors(
        label=runs[0].cell.label,
        method=runs[0].cell.method,
        seeds=tuple(one.cell.seed for one in runs),
        errors=tuple(over(column.positions) for column in columns),
        mean=over(range(segments)),
        rounds=tuple(over(column.positions) for column in rounds),
        cost=metrics.cost([r for one in runs for r in one.records], [one.done.peak_memory for one in runs if one.done]),
        status=_status(runs, segments, images),
        problems=_problems(runs),
        traits=runs[0].cell.traits,
        fixed=fixed,
    )


def _status(runs: Sequence[MethodRun], domains: int, images: int | None) -> str:
    if all(one.done for one in runs):
        return ""
    if not any(one.records for one in runs):
        return "waiting"
    if len(runs) > 1:
        return f"running, {sum(one.done is not None for one in runs)} of {len(runs)} seeds"
    return f"running, {len(metrics.complete_segments(runs[0].records, None, images))} of {domains} domains"


def _problems(runs: Sequence[MethodRun]) -> tuple[str, ...]:
    found = []
    for one in runs:
        if one.done is not None and not one.done.valid:
            seed = f"seed {one.cell.seed}: " if len(runs) > 1 else ""
            found += [seed + problem for problem in one.done.problems or ("no reason given",)]
    return tuple(found)


def lowest(values: Mapping[str, Value | None]) -> frozenset[str]:
    """Labels with the lowest error as printed, so ties share the mark; a single one is not best."""
    shown = {label: f"{value.mean:.1f}" for label, value in values.items() if value is not None}
    least = min(shown.values(), key=float, default="")
    return frozenset(label for label, text in shown.items() if text == least and len(shown) > 1)


# Tables


def needs(traits: Mapping[str, Any]) -> dict[str, str]:
    """What a method needs and costs, in words: passes per batch, prediction before or after its update, source data."""

    def span(name: str) -> str:
        low, high = traits[name]
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    return {
        "learns": traits["learns"],
        "forward": span("forwards"),
        "backward": span("backwards"),
        "prediction": ABSENT if traits["learns"] == "nothing" else traits["answers"],
        "source": traits["source"],
        "boundaries": "used" if traits["boundaries"] else ABSENT,
    }


CostColumn = tuple[str, Callable[[Cost], float | None], str]  # head, value and format
COSTS: tuple[CostColumn, ...] = (
    ("s/batch", lambda cost: cost.seconds, ".3g"),
    ("images/s", lambda cost: cost.images_per_second, ".0f"),
    ("MB", lambda cost: cost.memory, ".0f"),
    ("views", lambda cost: cost.views, ".3g"),
)


def table(made: ErrorTable, *, spread: bool = True, costs: bool = True, domains: bool = True) -> Table:
    """Errors and costs as printed. Without `spread`, only the mean keeps its standard deviation."""
    parts = made.columns if domains and made.labelled else ()
    rounds = made.rounds if domains and made.labelled else ()
    wanted = _known_costs(made) if costs else []
    notes = render.numbered(row.remark for row in made.rows)
    columns = [TableColumn("", "name"), *(TableColumn(part.short) for part in parts)]
    columns += [TableColumn("mean", apart=True)] if made.labelled else []
    columns += [TableColumn(part.short) for part in rounds]
    columns += [TableColumn(head, apart=not number) for number, (head, _, _) in enumerate(wanted)]
    rows = []
    for row in made.rows:
        cells = [TableCell(row.label + row.dagger, note=notes.get(row.remark, 0))]
        errors = zip(row.errors if parts else (), made.best, strict=False)  # the last is that of the mean
        cells += [TableCell(printed(value, spread=spread), row.label in best) for value, best in errors]
        cells += [TableCell(printed(row.mean), row.label in made.best[-1])] if made.labelled else []
        in_rounds = zip(row.rounds if rounds else (), made.best_rounds, strict=False)
        cells += [TableCell(printed(value, spread=spread), row.label in best) for value, best in in_rounds]
        cells += [TableCell(formatted(read(row.cost), style)) for _, read, style in wanted]
        rows.append(tuple(cells))
    title = " · ".join(part for part in (made.name, made.dataset) if part)
    return Table(tuple(columns), tuple(rows), title, (made.caption(),), tuple(notes))


def layouts(made: ErrorTable) -> Iterator[Table]:
    """For the terminal, from the fullest to the smallest: a narrow one has the domains down, the narrowest none."""
    costs = [head for head, _, _ in _known_costs(made)]
    spreads = (
        ["standard deviations by domain"] if any(v and v.sd is not None for r in made.rows for v in r.errors) else []
    )
    domains = ["errors by domain"] if made.labelled else []

    def without(left_out: Sequence[str], one: Table) -> Table:
        return render.lacking(one, left_out, "table.csv")

    yield table(made)
    yield without(costs, table(made, costs=False))
    yield without([*spreads, *costs], table(made, spread=False, costs=False))
    yield render.transposed(table(made))
    yield without(spreads, render.transposed(table(made, spread=False)))
    yield without(domains, table(made, domains=False))
    yield without([*domains, *costs], table(made, domains=False, costs=False))


def _known_costs(made: ErrorTable) -> list[CostColumn]:
    """Those that some method has."""
    heads = {"images/s": made.rate}
    found = (cost for cost in COSTS if any(cost[1](row.cost) is not None for row in made.rows))
    return [(heads.get(head, head), read, style) for head, read, style in found]


def data(made: ErrorTable) -> Table:
    """For CSV: errors with one decimal; standard deviations in columns of their own, if there are any."""
    titles = [*(part.title for part in made.columns), "mean", *(part.title for part in made.rounds)]

    def line(row: MethodErrors) -> dict[str, object]:
        values = zip(titles, (*row.errors, row.mean, *row.rounds), strict=True)
        errors = {title: value for title, value in values if made.labelled}
        return {
            "label": row.label,
            "method": row.method,
            "seeds": " ".join(map(str, row.seeds)),
            **{title: value and f"{value.mean:.1f}" for title, value in errors.items()},
            **{
                f"{title} sd": value and formatted(value.sd, ".2f", "")
                for title, value in errors.items()
                if made.several_seeds
            },
            "boundaries": made.boundaries,
            "protocol": made.protocol,
            "images_per_domain": made.images,
            "batch": made.batch,
            "seconds_per_batch": formatted(row.cost.seconds, ".4g", ""),
            "images_per_second": formatted(row.cost.images_per_second, ".4g", ""),
            "peak_memory_mb": formatted(row.cost.memory, ".4g", ""),
            "views": formatted(row.cost.views, ".4g", ""),
            "source_data": row.traits.get("source"),
            **row.outcome(),
        }

    return render.data_table([line(row) for row in made.rows])
