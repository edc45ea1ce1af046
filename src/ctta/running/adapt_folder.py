"""Adapt to samples without labels, with any method: what `ctta adapt` does.

    plan = plan_adaptation("timm:resnet50", "photos/", method="sift")
    for summary in plan.run("predictions.csv", report="runs/photos"):
        ...  # after every batch; the last one sums up all of them

The table of predictions grows batch by batch: an interrupt loses nothing. A sample that cannot be read gets a line that
says why.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from ctta.base.errors import ConfigError, InputError, StateError
from ctta.base.fileio import Appender, hashed, home, writing
from ctta.base.lock import locked
from ctta.base.text import csv_cell, quoted
from ctta.core.device import AUTO, deterministic
from ctta.core.execution import Execution
from ctta.core.guard import RETRIAL, VERDICTS, Adapting, Guard
from ctta.core.guard_state import TRIAL, Event
from ctta.core.saving import SavedAdapter
from ctta.data.unlabelled import UnlabelledSamples, UnlabelledStream, open_unlabelled
from ctta.records.run_folder import Cell, GuardEvent, Run, RunFolder
from ctta.running.asked_model import ask
from ctta.running.environment import environment
from ctta.running.gallery import ChangedGallery
from ctta.running.memory import PeakMemory
from ctta.running.method_run import write_method_run
from ctta.running.runner import Evaluated, evaluate

log = logging.getLogger("ctta")

ALONE, WEIGHTS = "the unadapted model alone", "the unadapted weights under the stream's statistics"
CAUTIONS = {  # whose predictions a guard gives instead of the adapter's, and why
    "blank": (ALONE, "the samples show nothing: one value per channel, or faint noise"),
    "statistics": (ALONE, "the stream holds few of the classes, or its statistics make the model less sure"),
    "harm": (WEIGHTS, "what was learned narrows the answers, or there is evidence that it does harm"),
    "frozen": (WEIGHTS, "the adapter learns no more"),
    "trial": (WEIGHTS, f"a new adapter is on trial for its first {TRIAL} samples"),
    "alarm": (WEIGHTS, f"after an alarm the adapter is on trial for {RETRIAL} samples"),
    "no shift": (WEIGHTS, "there is no sign of a shift, so learning has nothing to gain"),
}


@dataclass(frozen=True)
class PredictionRow:
    """One line of the table. Empty: not known, or not read."""

    file: str
    prediction: int | None = None
    name: str = ""
    confidence: float | None = None
    selected: int | None = None  # 1 or 0; None if the method selects nothing
    source_prediction: int | None = None  # the unadapted model's
    source_name: str = ""
    batch: int | None = None
    error: str = ""  # why it was not read


@dataclass(frozen=True)
class AdaptationSummary:
    """How far the adaptation is, and what is known so far."""

    total: int  # samples, also those that cannot be read
    predicted: int = 0
    skipped: int = 0
    changed: int = 0  # predictions that differ from the source model's
    seconds: float = 0.0  # reading and adapting
    confidence: tuple[float, ...] = ()  # mean of each batch
    source_confidence: tuple[float, ...] = ()  # the unadapted model's
    guarded: bool = False
    cautions: Counter[str] = field(default_factory=Counter)  # samples per reason, see `CAUTIONS`
    watched: bool = False  # whether the guard answered the latest batch with the unadapted weights for evidence of harm
    events: tuple[Event, ...] = ()  # what the guard did and told
    first_error: str = ""

    @property
    def done(self) -> int:
        return self.predicted + self.skipped

    def add(self, rows: Sequence[PredictionRow]) -> AdaptationSummary:
        """Return the summary with some more lines of the table."""
        read = [row for row in rows if not row.error]
        failed = [f"{row.file}: {row.error}" for row in rows if row.error]
        return replace(
            self,
            predicted=self.predicted + len(read),
            skipped=self.skipped + len(failed),
            changed=self.changed + sum(row.prediction != row.source_prediction for row in read),
            first_error=self.first_error or next(iter(failed), ""),
        )

    def along(self, values: Sequence[float], parts: int = 4) -> str:
        """The mean, and the means of consecutive parts of the stream."""
        pieces = np.array_split(np.array(values), min(parts, len(values)) or 1)
        return f"{fmean(values):.2f} ({' → '.join(f'{piece.mean():.2f}' for piece in pieces if len(piece))})"

    def describe(self) -> list[str]:
        """One sentence for each thing worth knowing."""
        rate = self.predicted / max(self.seconds, 1e-9)
        lines = [f"{self.predicted} samples in {self.seconds:.1f} s, {rate:.1f} per second."]
        if self.skipped:
            lines.append(f"{self.skipped} could not be read and were left out; the first: {self.first_error}")
        if self.confidence:
            adapted, source = self.along(self.confidence), self.along(self.source_confidence)
            lines.append(f"Mean confidence, and along the stream: adapted {adapted}, unadapted {source}.")
        return [*lines, self.comparison(), *self.verdict()]

    def verdict(self) -> list[str]:
        """What the guard has to say in the end."""
        if not self.guarded:
            return ["No guard watched, so whether adapting did harm is not known."]
        said = [*(f"Guard, batch {event.batch}: {event.words}" for event in self.events), *self.answered()]
        evidence = (
            "some evidence of harm, not enough for an alarm; the latest predictions come from the unadapted weights."
        )
        return said if self.harm else [*said, f"Guard: {evidence if self.watched else 'no sign of harm.'}"]

    def answered(self) -> list[str]:
        """How many predictions are not those of what was learned, if any, and why."""
        return [
            f"Guard: {self.cautions[name]} of {self.predicted} predictions come from {whose}: {why}."
            for name, (whose, why) in CAUTIONS.items()
            if self.cautions[name]
        ]

    @property
    def harm(self) -> bool:
        """Whether the guard has told of more than a change."""
        return any(event.alarming for event in self.events)

    def comparison(self) -> str:
        share = 100 * self.changed / max(self.predicted, 1)
        return f"{share:.1f} % of the predictions differ from the unadapted model's."


class PredictionTable:
    """A CSV file with a line per sample in the order of the stream, also for samples that could not be read."""

    def __init__(self, file: Appender, stream: UnlabelledStream, classes: Sequence[str]) -> None:
        self._file, self._stream, self._classes = file, stream, classes
        self._text = io.StringIO()  # what is not in the file yet
        self._table = csv.DictWriter(self._text, [column.name for column in fields(PredictionRow)])
        self._table.writeheader()
        self._written = 0  # batches

    def write(self, evaluated: Evaluated | None = None) -> list[PredictionRow]:
        """Write a batch, or none at the end, after those before it of which nothing could be read."""
        end, predictions = len(self._stream), iter(list[Any]())
        if evaluated is not None and evaluated.source is not None:
            end, source = evaluated.batch.step + 1, evaluated.source.tolist()
            selected = [None] * len(source) if evaluated.selected is None else evaluated.selected.long().tolist()
            predictions = zip(
                evaluated.prediction.tolist(), evaluated.confidence.tolist(), selected, source, strict=True
            )
        samples, names, made = self._stream.samples, self._classes, list[PredictionRow]()
        for batch in range(self._written, end):
            for row in self._stream.rows(batch).tolist():
                line = PredictionRow(samples.names[row], batch=batch, error=samples.unread.get(row, ""))
                if not line.error:
                    prediction, confidence, chosen, before = next(predictions)
                    name, source_name = (names[prediction], names[before]) if names else ("", "")
                    known = (prediction, name, round(confidence, 6), chosen, before, source_name)
                    line = PredictionRow(line.file, *known, batch)
                made.append(line)
        self._written = end
        self._table.writerows({name: csv_cell(value) for name, value in asdict(line).items()} for line in made)
        self._file.write(self._text.getvalue().encode())
        self._text.seek(self._text.truncate(0))
        return made


@dataclass(frozen=True)
class AdaptationPlan:
    """An adapter, the stream it will meet, and what was asked for."""

    adapter: Adapting
    stream: UnlabelledStream
    cell: Cell
    classes: tuple[str, ...]  # names; empty if they are not known
    about: Mapping[str, Any]  # what was asked for, as plain data
    execution: Execution
    state: Path | None = None  # file that the adapter goes on from, and that it is saved to

    @property
    def device(self) -> torch.device:
        return self.adapter.placement[0]

    @property
    def samples(self) -> UnlabelledSamples:
        return self.stream.samples

    def describe(self) -> str:
        asked = self.about["methods"][0]["preset"]
        why = f" by input {self.samples.shape}" if self.cell.preset != asked else ""
        batches = "1 batch" if len(self.stream) == 1 else f"{len(self.stream)} batches"
        return (
            f"{self.samples.title}: {len(self.samples)} samples {self.samples.shape} in {batches}. "
            f"{self.cell.label}: settings of preset {quoted(self.cell.preset)}{why}. {self.samples.note}".rstrip()
        )

    def run(
        self, out: Path | str, report: Path | str | None = None, *, force: bool = False, command: str = ""
    ) -> Generator[AdaptationSummary, None, None]:
        """Write the table, and a run folder if one is given; yields after every batch."""
        out, folder = Path(out), None if report is None else RunFolder(report)
        held = nullcontext() if folder is None else locked(folder.path)
        with locked(out, file=True), held, deterministic(self.device), self._carried():
            yield from self._run(out, folder, force, command)

    @contextmanager
    def _carried(self) -> Iterator[None]:
        """Go on from the file of the state, if there is one; what was learned is saved to it, however this ends."""
        if self.state is None:
            yield
            return
        with locked(self.state, file=True):
            if self.state.exists():
                self._resume(self.state)
            began = self.adapter.batches
            try:
                yield
            finally:
                if self.adapter.batches > began:
                    self.adapter.save(self.state)

    def _resume(self, path: Path) -> None:
        saved = SavedAdapter.read(path)
        if saved.guarded != isinstance(self.adapter, Guard):
            words = ("with", "Remove") if saved.guarded else ("without", "Give")
            raise StateError(f"{path} was saved {words[0]} a guard. {words[1]} --no-guard to go on.")
        if saved.about["seed"] != self.adapter.seed:
            raise StateError(f"{path} was saved with another seed. Give --seed {saved.about['seed']} to go on.")
        try:
            self.adapter.load_state_dict(saved.state)
        except StateError as error:
            raise StateError(f"{path} cannot be used. {error}") from error

    def _run(self, out: Path, folder: RunFolder | None, force: bool, command: str) -> Iterator[AdaptationSummary]:
        begun = {out: [out], **({folder.path / "run.json": folder.path.glob("*.jsonl")} if folder else {})}
        taken = [path for path, files in begun.items() if any(file.exists() and file.stat().st_size for file in files)]
        if taken and not force:
            names = " and ".join(map(str, taken))
            raise StateError(f"{names} would be overwritten. Use --force, or give another name.")
        summary, began = AdaptationSummary(len(self.samples), guarded=self.cell.guard), time.perf_counter()
        batches = self._beside_source(evaluate(self.adapter, self.stream, tell=False))
        if folder is not None:
            head = self._begin(folder, command)
            memory, gallery = PeakMemory(self.device), ChangedGallery(self._names)
            batches = write_method_run(folder, self.cell.cell, self.adapter, batches, memory, gallery)
        with writing(out):
            out.write_bytes(b"")
        with Appender(out) as file:
            table = PredictionTable(file, self.stream, self.classes)
            for evaluated in batches:
                summary = summary.add(table.write(evaluated))
                summary = replace(
                    summary,
                    confidence=(*summary.confidence, float(evaluated.confidence.mean())),
                    source_confidence=(*summary.source_confidence, evaluated.record.info["source_confidence"]),
                    cautions=summary.cautions + self._cautions(evaluated),
                    watched=isinstance(self.adapter, Guard) and self.adapter.verdict == "watched",
                    events=tuple(self.adapter.events) if isinstance(self.adapter, Guard) else (),
                    seconds=time.perf_counter() - began,
                )
                yield summary
            summary = summary.add(table.write())
        if not summary.predicted:
            raise InputError(
                f"None of the {summary.total} samples could be read. {summary.first_error} {out} names them all."
            )
        if folder is not None:
            notes: tuple[str, ...] = (*self.stream.notes, summary.comparison(), *summary.answered())
            if summary.skipped:
                notes += (f"{summary.skipped} of {summary.total} samples could not be read.",)
            events = tuple(GuardEvent(event.batch, event.kind, event.words) for event in summary.events)
            stream = {**head.stream, "images": summary.predicted}
            folder.write_run(replace(head, stream=stream, notes=notes, events=events))
        yield summary

    def _beside_source(self, batches: Iterable[Evaluated]) -> Iterator[Evaluated]:
        """Each batch with the unadapted model's predictions; its record says how they differ."""
        for evaluated in batches:
            known = evaluated.source_logits
            confidence, source = (self.adapter.source(evaluated.x) if known is None else known).softmax(1).max(1)
            source = source.cpu()
            changed = (evaluated.prediction != source).double().mean()
            info = {"source_confidence": float(confidence.mean()), "changed": float(changed)}
            record = replace(evaluated.record, info={**evaluated.record.info, **info})
            yield replace(evaluated, record=record, source=source)

    def _names(self, batch: int) -> list[str]:
        """Of the samples of a batch that could be read."""
        rows, unread = self.stream.rows(batch).tolist(), self.samples.unread
        return [self.samples.names[row] for row in rows if row not in unread]

    def _cautions(self, evaluated: Evaluated) -> Counter[str]:
        """How many samples of a batch a guard did not leave to what was learned, by the reason."""
        info = evaluated.record.info
        blank = int(info.get("blank", 0))
        return Counter({"blank": blank, self._caution(info): len(evaluated.prediction) - blank})

    def _caution(self, info: Mapping[str, float]) -> str:
        """Why a guard did not leave a batch to what was learned; empty if it did."""
        if info.get("heard") == 1:
            return "statistics"
        if not isinstance(self.adapter, Guard) or info["trusted"] or not self.adapter.trained:
            return ""
        verdict = VERDICTS[int(info["guard"])]  # on this batch: after an alarm it is healthy again, and on trial
        if verdict != "healthy":
            return "frozen" if verdict == "frozen" else "harm"
        if self.adapter.state.trial:
            return "trial" if self.adapter.state.alarm < 0 else "alarm"
        return "no shift"

    def _begin(self, folder: RunFolder, command: str) -> Run:
        """Write the head of the run folder, over an earlier one."""
        stream = {
            "dataset": self.samples.title,
            "domains": [[domain.name, domain.severity] for domain in self.stream.domains],
            "images": len(self.samples),
            "batch": self.stream.batch,
            "boundaries": "unknown" if self.adapter.drift is None else "detected",
            "classes": list(self.classes),
        }
        identity = hashed(json.dumps([self.about, asdict(self.cell)], sort_keys=True))
        head = Run(self.samples.title, identity, self.about, stream, (self.cell,), environment(self.execution), command)
        for old in (folder.done_path, folder.records_path, folder.samples_path):
            with writing(old(self.cell.cell)):
                old(self.cell.cell).unlink(missing_ok=True)
        folder.write_run(head)
        return head


def plan_adaptation(
    model: str,
    path: Path | str,
    *,
    method: str = "sift",
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    weights: str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    channels: int = 3,
    batch: int = 64,
    seed: int = 0,
    classes: Path | str | None = None,
    detect: bool = False,
    guard: bool = True,
    device: str = AUTO,
    clean: Path | str | None = None,
    state: Path | str | None = None,
) -> AdaptationPlan:
    """Check everything before the first batch; all mistakes of the settings are reported together.

    `model` is 'embedded', a name from ctta.models.MODELS, 'timm:...' and its like, or a factory. `changes` are fields
    of the method's settings. Without `size`, images get the model's own, or keep theirs if all are equal; with one of
    the `channels` they are grey. `clean` are samples of the source domain for the guard; `state` is a file that the
    adapter goes on from and is saved to.
    """
    if channels not in (1, 3):
        raise ConfigError(f"--channels must be 3, or 1 for grey pictures. Got {channels}.")
    if clean is not None and not guard:
        raise ConfigError("--clean is for the guard, and --no-guard switches it off. Remove one of them.")
    asked = ask(
        model,
        method=method,
        preset=preset,
        changes=changes,
        weights=weights,
        mean=mean,
        std=std,
        size=size,
        batch=batch,
        seed=seed,
        classes=classes,
        guard=guard,
        device=device,
    )
    stream = open_unlabelled(Path(path), batch, asked.size, channels)
    if len(stream.samples.shape) == 2 and (size is not None or channels != 3):
        option = "--channels" if size is None else "--size"
        raise ConfigError(f"{path} holds point clouds, which have no size in pixels and no colours. Remove {option}.")
    cell, adapter = asked.adapter((batch, *stream.samples.shape), detect=detect)
    asked.warn_of_normalization()
    names = asked.class_names(adapter.classes)
    if clean is not None and isinstance(adapter, Guard):
        _show_clean(adapter, Path(clean), stream, asked.size, channels)
    data = {
        "path": str(path),
        "size": asked.size,
        "channels": channels,
        "batch": batch,
        "detect": detect,
        "clean": clean and str(clean),
    }
    kept = None if state is None else home(state)
    return AdaptationPlan(adapter, stream, cell, names, {**asked.about, "data": data}, asked.execution, kept)


def _show_clean(guard: Guard, path: Path, stream: UnlabelledStream, size: int | None, channels: int) -> None:
    """Show the guard samples of the source domain, which are read as those of the stream are."""
    given = open_unlabelled(path, stream.batch, size, channels)
    if given.samples.shape != stream.samples.shape:
        raise InputError(
            f"The clean samples in {path} have shape {given.samples.shape}, the others {stream.samples.shape}. "
            "Give samples of the same shape."
        )
    device, _ = guard.placement
    guard.prepare(batch.x.to(device) for batch in given)
