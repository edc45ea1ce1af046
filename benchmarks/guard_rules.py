"""Rules that say when adaptation has done harm, at an equal rate of false alarms.

`python -m benchmarks.guard_rules EXPERIMENT --set data.path=... --work rules.jsonl` takes data and model from an
experiment file. `--table results/guard_rules --work rules.jsonl` writes the table. Every finished run is a line of the
work file, and what is there is skipped, so it can be stopped and goes on; it stops by itself after `--seconds`.

    watched     TENT with auto statistics on a stream; every rule gives a score per batch, and none acts
    calibrated  per network and rule, the lowest limit that no healthy stream on the four extra corruptions exceeds
                (published rate, shuffled and bursts)
    acted       on the harmful streams (10, 30 and 100 times the rate, on the paper's corruptions), a score above the
                limit takes the adapter and the rule back to the start; the answer to the batch stays

Labels are for the referee alone. Harm begins where the count of wrong answers beyond the reference's, less SLACK per
sample, was last 0 before it exceeded HARM (the CUSUM of Page). The delay of a rule is the number of batches from there
to its alarm; alarms before it are `early`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harm import protocol
from benchmarks.origin import add_origin, hashes, origin, origins
from ctta import TENT, Guard
from ctta.core import health
from ctta.core.losses import entropy, masked_mean
from ctta.data.corruptions.constants import EXTRA, PAPER
from ctta.data.dataset import Data
from ctta.data.stream import Stream
from ctta.experiments import experiment as experiments
from ctta.experiments.sections import read_yaml
from ctta.experiments.seeds import SAMPLES, seeded_stream

RATE = 1e-3  # published
IMAGES, DOMAINS, BATCH = 128, 4, 32  # per domain and per stream
SLACK, HARM = 0.05, 10.0
PASSES, DROPOUT = 10, 0.1  # AETTA has 0.4 for ten classes: too much for these networks, even on clean images
STAGES = ("layer1", "layer2", "layer3", "linear", "blocks.0", "blocks.1", "blocks.2", "fc")


@dataclass(frozen=True)
class Case:
    """One stream: what it is for, and what it is."""

    network: str
    purpose: str
    order: str
    rate: float  # times the published one
    seed: int


@dataclass(frozen=True)
class Seen:
    """What a rule may look at: the adapter's answers to a batch, the reference's, and those under dropout."""

    logits: Tensor  # (N, C)
    reference: Tensor  # (N, C)
    dropped: Callable[[], Tensor]  # (1 + PASSES, N, C); the first without dropout


class Rule:
    """Gives a score per batch; more is worse."""

    published: float  # the limit

    def score(self, seen: Seen) -> float:
        raise NotImplementedError


class Ours(Rule):
    """The CUSUM of `core.health`."""

    published = health.LIMIT
    evidence = 0.0

    def score(self, seen: Seen) -> float:
        self.evidence = max(0.0, self.evidence + float(health.excess(seen.logits, seen.reference)))
        return self.evidence


class Sar(Rule):
    """Moving average of the entropy of reliable samples."""

    published = -0.2
    average: float | None = None

    def score(self, seen: Seen) -> float:
        values = entropy(seen.logits)
        reliable = values < 0.4 * math.log(seen.logits.shape[1])
        if reliable.any():
            loss = float(masked_mean(values, reliable))
            self.average = loss if self.average is None else 0.9 * self.average + 0.1 * loss
        return -math.inf if self.average is None else -self.average


class RDumb(Rule):
    """Batches since the last reset."""

    published = 1000.0
    batches = 0

    def score(self, seen: Seen) -> float:
        self.batches += 1
        return float(self.batches)


class Asr(Rule):
    """How far the entropy of the mean prediction is below its moving average, as a part of that."""

    published = 0.0
    average: float | None = None

    def score(self, seen: Seen) -> float:
        average = math.log(0.5 * seen.logits.shape[1]) if self.average is None else self.average
        now = concentration(seen.logits)
        differ = float((seen.logits.argmax(1) != seen.reference.argmax(1)).float().mean())
        keep = 1 - 0.15 + 0.15 * differ
        self.average = keep * average + (1 - keep) * now
        return 1 - now / max(average, 1e-12)


class AettaLevel(Rule):
    """Error in percent, estimated from the disagreement with passes under dropout."""

    published = 80.0
    error: float | None = None

    def score(self, seen: Seen) -> float:
        found = dropout_error(seen.dropped())
        self.error = found if self.error is None else 0.6 * self.error + 0.4 * found
        return 100 * self.error


class AettaRise(AettaLevel):
    """How much more that error is, over five batches, than over the five before."""

    published = 2.0

    def __init__(self) -> None:
        self.errors: list[float] = []

    def score(self, seen: Seen) -> float:
        self.errors = [*self.errors[-9:], super().score(seen)]
        return fmean(self.errors[5:]) - fmean(self.errors[:5]) if len(self.errors) == 10 else -math.inf


class Narrowing(Rule):
    """The CUSUM of how much more concentrated the adapter's answers are than the reference's."""

    published = 0.5
    evidence = 0.0

    def score(self, seen: Seen) -> float:
        gap = concentration(seen.reference) - concentration(seen.logits)
        self.evidence = max(0.0, self.evidence + gap / math.log(seen.logits.shape[1]) - 0.02)
        return self.evidence


RULES: dict[str, type[Rule]] = {
    "ours": Ours,
    "SAR": Sar,
    "RDumb": RDumb,
    "ASR": Asr,
    "AETTA level": AettaLevel,
    "AETTA rise": AettaRise,
    "narrowing": Narrowing,
}


def concentration(logits: Tensor) -> float:
    """ASR's E: the entropy of the mean logits; low if all answers are the same."""
    return float(entropy(logits.mean(0, keepdim=True)))


def dropout_error(logits: Tensor) -> float:
    """AETTA's estimate of the error, from logits (1 + PASSES, N, C) of which the first are without dropout."""
    label, others, classes = logits[0].argmax(1), logits[1:], logits.shape[2]
    disagreement = 1 - float((others.argmax(2) == label).float().mean())
    mean = others.softmax(2).mean((0, 1))
    spread = float(torch.special.entr(mean).sum()) / math.log(classes)
    return min(max(disagreement / max(spread**3, 1e-12), 0.0), 1 - 1 / classes)


class Watched(TENT):
    """TENT whose `predict` also gives its answers under dropout, if there is a generator for it."""

    name, title = "watched", "Watched"
    generator: torch.Generator | None = None

    def logits(self, x: Tensor) -> Tensor:
        plain = self.run(self.network, x)
        if self.generator is None:
            return plain
        stages = [layer for name, layer in self.network.named_modules() if name.removeprefix("model.") in STAGES]
        assert stages, "the network has none of the stages that are known here"
        hooks = [stage.register_forward_pre_hook(self._drop) for stage in stages]
        try:
            return torch.cat([plain, *(self.run(self.network, x) for _ in range(PASSES))])
        finally:
            for hook in hooks:
                hook.remove()

    def _drop(self, layer: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        kept = torch.rand(given[0].shape, generator=self.generator) >= DROPOUT
        return (given[0] * kept / (1 - DROPOUT),)

    def dropped(self, x: Tensor) -> Tensor:
        self.generator = torch.Generator().manual_seed(1000 * self.seed + self.batches)
        try:
            return self.predict(x).view(1 + PASSES, len(x), -1)
        finally:
            self.generator = None


def stream(data: Data, case: Case) -> Stream:
    """The batches of a case: some of the domains and some images of each, by the seed."""
    drawn = torch.randperm(len(data.domains), generator=torch.Generator().manual_seed(case.seed))[:DOMAINS].tolist()
    some = data.replace(domains=tuple(data.domains[place] for place in drawn))
    return seeded_stream(some, protocol(case.order, case.seed), (SAMPLES,), case.seed)


def run(model: nn.Module, data: Data, case: Case, acts: Sequence[str], limit: float | None = None) -> dict[str, Any]:
    """Samples, wrong answers and the reference's per batch; with a limit the alarms of the rule, else all scores.

    The rule "guard" is the whole `ctta.Guard`: also its answers and its ladder.
    """
    adapter = Watched(model, preset="paper", statistics="auto", seed=case.seed, lr=RATE * case.rate)
    guard = Guard(adapter) if "guard" in acts else None
    rules = {name: RULES[name]() for name in acts if name in RULES}
    rows: dict[str, list[Any]] = {"n": [], "wrong": [], "reference": [], "alarms": []}
    scores: dict[str, list[float | None]] = {name: [] for name in rules}
    for number, batch in enumerate(stream(data, case)):
        x, y, counts = batch.x, batch.y, batch.y >= 0
        logits, reference = (guard or adapter)(x), adapter.reference(x)
        rows["n"].append(int(counts.sum()))
        rows["wrong"].append(int((logits.argmax(1) != y)[counts].sum()))
        rows["reference"].append(int((reference.argmax(1) != y)[counts].sum()))
        seen = Seen(logits, reference, lru_cache(partial(adapter.dropped, x)))
        for name, rule in rules.items():
            score = rule.score(seen)
            scores[name].append(round(score, 5) if math.isfinite(score) else None)
            if limit is not None and score > limit:
                rows["alarms"].append(number)
                adapter.restore_source()
                rules = {name: RULES[name]()}
    if guard:
        rows["alarms"] = [event.batch for event in guard.events if event.kind in ("roll-back", "frozen")]
    return {**rows, **({"scores": scores} if limit is None and not guard else {})}


def onset(row: dict[str, Any]) -> int | None:
    """The batch at which harm begins; None if there is none."""
    excess, begin = 0.0, 0
    for number, (n, wrong, reference) in enumerate(zip(row["n"], row["wrong"], row["reference"], strict=True)):
        if excess == 0:
            begin = number
        excess = max(0.0, excess + wrong - reference - SLACK * n)
        if excess > HARM:
            return begin
    return None


def highest(row: dict[str, Any], rule: str) -> float:
    return max((value for value in row["scores"][rule] if value is not None), default=-math.inf)


def calibrated(rows: Sequence[dict[str, Any]], rule: str) -> float:
    """The lowest limit that no healthy stream exceeds."""
    return max(highest(row, rule) for row in rows)


def first_alarm(row: dict[str, Any], rule: str, limit: float, start: int = 0) -> int | None:
    """The first batch from `start` on whose score is above the limit, if nothing acts."""
    scores = row["scores"][rule]
    return next((n for n in range(start, len(scores)) if scores[n] is not None and scores[n] > limit), None)


def cases(network: str, calibration: int, held_out: int, harmful: int) -> Iterator[Case]:
    """All streams of a network, by the number of seeds of each kind."""
    for seed in range(calibration):
        for order in ("shuffled", "bursts"):
            yield Case(network, "calibration", order, 1, seed)
    for seed in range(1000, 1000 + harmful):
        for rate in (10, 30, 100):
            for order in ("sorted", "one class", "poisoned"):
                yield Case(network, "harmful", order, rate, seed)
    for seed in range(2000, 2000 + held_out):
        for order in ("shuffled", "bursts"):
            yield Case(network, "held out", order, 1, seed)


class Work:
    """The file of finished runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def find(self, **fields: Any) -> list[dict[str, Any]]:
        return [row for row in self.rows if all(row[name] == value for name, value in fields.items())]

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def fill(
    work: Work, model: nn.Module, suites: dict[str, Data], todo: list[Case], rules: Sequence[str], until: float
) -> bool:
    """Run what is missing; says whether all is there."""
    for acting in (False, True):
        for case in todo:
            watched = work.find(acts="", **asdict(case))
            if acting and (case.purpose != "harmful" or onset(watched[0]) is None):
                continue
            for rule in [*rules, "guard"] if acting else [""]:
                if work.find(acts=rule, **asdict(case)):
                    continue
                if time.monotonic() > until:
                    return False
                data, limit = suites["extra" if case.purpose == "calibration" else "paper"], None
                if rule in RULES:
                    limit = calibrated(work.find(acts="", network=case.network, purpose="calibration"), rule)
                if limit is not None and first_alarm(watched[0], rule, limit) is None:  # then nothing is different
                    found = {name: watched[0][name] for name in ("n", "wrong", "reference", "alarms")}
                else:
                    found = run(model, data, case, [rule] if rule else rules, limit)
                work.add({**asdict(case), "acts": rule, "limit": limit, **found})
    return True


def error(rows: Sequence[dict[str, Any]], name: str) -> float:
    """In percent, the mean over streams."""
    return fmean(100 * sum(row[name]) / sum(row["n"]) for row in rows)


def key(row: dict[str, Any]) -> dict[str, Any]:
    """The case of a row."""
    return {name: row[name] for name in Case.__dataclass_fields__}


def table(work: Work) -> Iterator[dict[str, Any]]:
    """A line per network, rule and limit."""
    for network in sorted({row["network"] for row in work.rows}):
        healthy, held = (work.find(acts="", network=network, purpose=one) for one in ("calibration", "held out"))
        harmful = [row for row in work.find(acts="", network=network, purpose="harmful") if onset(row) is not None]
        names = (*healthy[0]["scores"], "guard")
        acted_on = [row for row in harmful if all(work.find(acts=name, **key(row)) for name in names)]
        for rule in names:
            acted = [work.find(acts=rule, **key(row))[0] for row in acted_on]
            for kind in ("calibrated", "published") if rule in RULES else ("as it is",):
                line: dict[str, Any] = {"network": network, "rule": rule, "limit": kind}
                if rule in RULES:
                    limit = calibrated(healthy, rule) if kind == "calibrated" else RULES[rule].published
                    begins = [onset(row) or 0 for row in harmful]
                    alarms = [first_alarm(row, rule, limit, at) for row, at in zip(harmful, begins, strict=True)]
                    delays = [a - at for a, at in zip(alarms, begins, strict=True) if a is not None]
                    early = [first_alarm(row, rule, limit) for row in harmful]
                    line |= {
                        "value": round(limit, 3),
                        "false_alarms": f"{sum(highest(row, rule) > limit for row in healthy)} of {len(healthy)}",
                        "held_out": f"{sum(highest(row, rule) > limit for row in held)} of {len(held)}",
                        "early": sum(a is not None and a < at for a, at in zip(early, begins, strict=True)),
                        "missed": f"{len(harmful) - len(delays)} of {len(harmful)}",
                        "delay": median(delays) if delays else "",
                    }
                if kind != "published" and acted:  # the same streams for every rule
                    line |= {
                        "acted": f"{len(acted)} of {len(harmful)}",
                        "error": round(error(acted, "wrong"), 1),
                        "unguarded": round(error(acted_on, "wrong"), 1),
                        "reference": round(error(acted_on, "reference"), 1),
                        "resets": round(fmean(len(row["alarms"]) for row in acted), 1),
                    }
                yield line


COLUMNS = ("network", "rule", "limit", "value", "false_alarms", "held_out", "early", "missed", "delay")
COLUMNS += ("acted", "error", "unguarded", "reference", "resets")


def write_table(work: Work, out: Path) -> None:
    """The table as CSV, and as JSON the streams that it was made from."""
    with out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table(work))
    streams = [{**key(row), "acts": row["acts"], "alarms": row["alarms"]} for row in work.rows]
    for line, row in zip(streams, work.rows, strict=True):
        line |= {"error": round(error([row], "wrong"), 1), "reference": round(error([row], "reference"), 1)}
        line |= {} if row["acts"] else {"batches": len(row["n"]), "harm_begins": onset(row)}
    about = {
        "runs": origins(work.path),
        "stream": {"images": IMAGES, "domains": DOMAINS, "batch": BATCH, "severity": 5},
    }
    text = ",\n ".join(json.dumps(line) for line in streams)
    out.with_suffix(".json").write_text(f'{json.dumps(about)[:-1]},\n "streams": [\n {text}\n]}}\n')


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard_rules", description=__doc__.partition("\n")[0])
    parser.add_argument("experiment", type=Path, nargs="?", help="file with the sections data and model")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs=3, default=(10, 5, 1), help="of calibration, held out, harmful")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after so long")
    parser.add_argument("--work", type=Path, required=True, help="file of finished runs")
    parser.add_argument("--table", type=Path, help="path of the table without its suffix")
    given = parser.parse_args(arguments)
    until, work = time.monotonic() + given.seconds, Work(given.work)
    if given.table:
        return write_table(work, given.table)
    values, suites = read_yaml(given.experiment, given.changes), {}
    for name, domains in (("extra", EXTRA), ("paper", PAPER)):
        data = {**values["data"], "domains": list(domains), "images": IMAGES, "batch": BATCH}
        made = experiments.make({"data": data, "model": values["model"], "methods": ["source"]}, given.experiment.stem)
        suites[name] = made.data
    todo, model = list(cases(made.name, *given.seeds)), made.model.load()
    seeds = sorted({case.seed for case in todo})
    add_origin(given.work, {"network": made.name, **origin(hashes(made.data, model), seeds)})
    print("all is there" if fill(work, model, suites, todo, given.rules, until) else "more is left to run")
    return None


if __name__ == "__main__":
    main()
