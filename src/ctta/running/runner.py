"""The loop: a stream through an adapter, a record a batch; and what makes it safe to interrupt.

Records are flushed batch by batch. The adapter's state is saved every so many seconds. After a crash the batches since
then are computed again and must equal the records that are there already; then the run goes on.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ctta
from ctta.base.errors import StateError
from ctta.core.adapter import Adapter, Step
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.protocols import PLAIN
from ctta.data.stream import Batch, Stream
from ctta.experiments.build import make_adapter, source_batches
from ctta.experiments.clean_probe import CleanSamples
from ctta.experiments.experiment import Experiment
from ctta.experiments.source_check import SourceError, beyond, expected, measure, scorable
from ctta.models import weights_hash
from ctta.records.run_folder import BINS, Cell, Done, Record, Run, RunFolder, Samples
from ctta.running import checkpoint
from ctta.running.gallery import as_pictures
from ctta.running.memory import PeakMemory, keep_freed

SHOWN = 6  # images a domain that are kept for the report
STRETCHES = 30  # of a long stream that images are kept of: the first


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    cell: Cell
    record: Record
    done: int  # batches, over all cells
    total: int


@dataclass
class Gallery:
    """A few images of the last batch of every domain, with the answers before and after adaptation."""

    kept: dict[int, dict[str, Any]] = field(default_factory=dict)  # by position in the stream

    def keep(self, adapter: Adapter, batch: Batch, step: Step) -> None:
        n = min(SHOWN, len(batch.x))
        selected = step.samples.get("selected", torch.full((len(batch.x),), -1))
        self.kept[batch.position] = {
            "images": as_pictures(batch.x[:n]),
            "position": np.full(n, batch.position),
            "label": batch.y[:n].cpu().numpy(),
            "source": batch.answer(adapter.source(batch.x[:n].to(step.logits.device))).cpu().numpy(),
            "adapted": batch.answer(step.logits[:n]).cpu().numpy(),
            "confidence": step.samples["confidence"][:n].double().cpu().numpy(),
            "selected": selected[:n].long().cpu().numpy(),
        }

    def samples(self) -> Samples:
        rows = [self.kept[position] for position in sorted(self.kept)]
        return Samples(**{name: np.concatenate([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def before(cls, samples: Samples | None, position: int) -> Gallery:
        """What an earlier attempt kept of the domains before this one."""
        gallery = cls()
        if samples is not None:
            for one in sorted({int(p) for p in samples.position if p < position}):
                rows = samples.position == one
                gallery.kept[one] = {name: values[rows] for name, values in asdict(samples).items()}
        return gallery


def evaluate(
    adapter: Adapter,
    stream: Stream,
    *,
    start: int = 0,
    tell: bool = True,
    gallery: Gallery | None = None,
    clean: CleanSamples | None = None,
) -> Iterator[Record]:
    """One record a batch, from batch `start` on. `tell` says whether the adapter learns where a domain starts.

    `clean` samples are asked where a stretch ends.
    """
    for batch in stream.batches(start):
        if batch.first and tell:
            adapter.begin_domain()
        step, record = take(adapter, batch)
        if gallery is not None and batch.last and batch.position < STRETCHES:
            gallery.keep(adapter, batch, step)
        if clean is not None and batch.last:
            record = replace(record, clean=clean.ask(adapter))
        yield record


def take(adapter: Adapter, batch: Batch) -> tuple[Step, Record]:
    """One batch through the adapter."""
    device, _ = adapter.placement
    x = batch.x.to(device)
    began = time.perf_counter()
    step = adapter.step(x)
    answer = batch.answer(step.logits).cpu()
    seconds = time.perf_counter() - began
    return step, _record(adapter, batch, step, answer, seconds)


@dataclass(frozen=True)
class Opened:
    """An experiment whose stream and model are open and whose run folder is claimed."""

    experiment: Experiment
    folder: RunFolder
    stream: Stream
    model: torch.nn.Module
    cells: tuple[Cell, ...]
    problems: tuple[str, ...]  # why the numbers are not to be trusted

    def unfinished(self) -> tuple[Cell, ...]:
        """The cells that are not complete. Marks of those that are say what is wrong as it is known now."""
        found = {cell.cell: self.folder.done(cell.cell) for cell in self.cells}
        for name, done in found.items():
            if done is not None and done.problems != self.problems:  # other errors are expected now
                self.folder.write_done(name, replace(done, valid=not self.problems, problems=self.problems))
        return tuple(cell for cell in self.cells if found[cell.cell] is None)


def open_run(experiment: Experiment, folder: RunFolder, command: str = "") -> Opened:
    """Open stream and model and claim the run folder; one that holds another experiment is refused."""
    keep_freed()
    stream, model = open_stream(experiment.data, experiment.protocol), experiment.model.load()
    x = next(iter(stream)).x
    with torch.no_grad():
        logits = model(x)  # warms up: libraries are loaded and threads started before the first cell is timed
    scorable(stream, logits.shape[-1])
    cells = experiment.cells(x.shape)
    run = _claim(folder, experiment, stream, model, cells, command)
    problems = _invalid(run, experiment, stream, x.shape[-1], logits.shape[-1])
    return Opened(experiment, folder, stream, model, cells, problems)


def run_cell(opened: Opened, cell: Cell, *, checkpoint_seconds: float = 30.0) -> Iterator[Record]:
    """One cell from where it was to its end; yields after every batch."""
    experiment, folder, stream = opened.experiment, opened.folder, opened.stream
    memory = PeakMemory()
    boundaries = experiment.data.boundaries
    adapter = make_adapter(cell, opened.model, experiment.execution, detects=boundaries == "detected")
    path = folder.path / "checkpoints" / f"{cell.cell}.pt"
    known = _whole_records(folder, cell.cell)
    start, saved = 0, checkpoint.load(path)
    if saved is not None and saved.step <= len(known):  # else records are lost: the cell begins again
        adapter.load_state_dict(saved.state)
        start = saved.step
    elif experiment.source is not None:
        adapter.prepare(source_batches(experiment.source, adapter))
    gallery = Gallery.before(folder.samples(cell.cell), stream.position(start))
    tell = boundaries == "known"
    clean = experiment.measure.open(experiment.data, stream)
    last_save = time.monotonic()
    with folder.records_path(cell.cell).open("a") as file:
        for record in evaluate(adapter, stream, start=start, tell=tell, gallery=gallery, clean=clean):
            if record.step < len(known):
                _must_equal(record, known[record.step], folder)
            else:
                file.write(json.dumps(asdict(record)) + "\n")
                file.flush()
            if time.monotonic() - last_save > checkpoint_seconds:
                if gallery.kept:
                    folder.write_samples(cell.cell, gallery.samples())
                checkpoint.save(path, adapter, record.step + 1)
                last_save = time.monotonic()
            yield record
    folder.write_samples(cell.cell, gallery.samples())
    records = list(folder.records(cell.cell))
    folder.write_done(
        cell.cell,
        Done(
            batches=len(records),
            n=sum(record.n for record in records),
            wrong=sum(record.wrong for record in records),
            seconds=sum(record.seconds for record in records),
            peak_memory=memory.megabytes(),
            valid=not opened.problems,
            problems=opened.problems,
        ),
    )
    path.unlink(missing_ok=True)


def execute(
    experiment: Experiment, folder: RunFolder, *, checkpoint_seconds: float = 30.0, command: str = ""
) -> Iterator[Progress]:
    """Run every cell that is not complete; yields after every batch. What is done stays done."""
    opened = open_run(experiment, folder, command)
    size, left = len(opened.stream), opened.unfinished()
    for number, cell in enumerate(opened.cells):
        if cell in left:
            for record in run_cell(opened, cell, checkpoint_seconds=checkpoint_seconds):
                yield Progress(cell, record, number * size + record.step + 1, len(opened.cells) * size)


def environment() -> dict[str, Any]:
    """What the numbers were made with."""
    return {
        "ctta": ctta.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _claim(
    folder: RunFolder,
    experiment: Experiment,
    stream: Stream,
    model: torch.nn.Module,
    cells: tuple[Cell, ...],
    command: str,
) -> Run:
    """The head of the run folder, written if it is a new one; one that holds another experiment is refused."""
    data = experiment.data
    files = {"data": stream.fingerprint or str(data.path), "weights": weights_hash(model)}
    identity = experiment.identity(files)
    if (folder.path / "run.json").is_file():
        found = folder.run()
        if found.identity != identity:
            before = {**found.experiment, "files": found.stream.get("files")}
            raise StateError(
                f"{folder.path} holds another experiment: "
                f"{_difference(before, {**experiment.asdict(), 'files': files})}. "
                "Give another --out, or remove the folder."
            )
        told = {"paper": experiment.paper, "baseline": experiment.baseline}  # decide no record, so they may change
        if any(found.experiment.get(key) != value for key, value in told.items()):
            found = replace(found, experiment={**found.experiment, **told})
            folder.write_run(found)
        return found
    source = measure(data, stream if experiment.protocol == PLAIN else open_stream(data), model)
    sizes = {len(domain) for domain in stream.domains}
    about = {
        "dataset": DATASETS[data.dataset].named(data),
        "domains": [[domain.name, domain.severity] for domain in stream.domains],
        "images": sizes.pop() if len(sizes) == 1 else None,
        "samples": DATASETS[data.dataset].samples,
        "batch": data.batch,
        "boundaries": data.boundaries,
        "protocol": experiment.protocol.asdict(),
        "classes": list(stream.classes),
        "files": files,
        "source_check": None if source is None else asdict(source),
    }
    notes = (*experiment.notes, *stream.notes)
    run = Run(experiment.name, identity, experiment.asdict(), about, cells, environment(), command, notes)
    folder.write_run(run)
    return run


def _invalid(run: Run, experiment: Experiment, stream: Stream, pixels: int, classes: int) -> tuple[str, ...]:
    """Why the numbers of a run are not to be trusted."""
    stored = run.stream.get("source_check")
    wanted = expected(experiment.model, experiment.data, stream, pixels)
    off = wanted.off(SourceError(**stored), experiment.model.tolerance) if wanted and stored else ""
    return tuple(problem for problem in (beyond(stream, classes), off) if problem)


def _whole_records(folder: RunFolder, cell: str) -> list[Record]:
    """The records that are there; a line that a crash cut short is taken off the file."""
    path = folder.records_path(cell)
    if path.is_file():
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with path.open("r+b") as file:
                file.truncate(len(whole))
    return list(folder.records(cell))


def _must_equal(record: Record, known: Record, folder: RunFolder) -> None:
    # Both sides go through JSON, so that numbers are compared as they are stored.
    found = Record(**json.loads(json.dumps(asdict(record))))
    expected = Record(**json.loads(json.dumps(asdict(known))))
    if not found.same(expected):
        raise StateError(
            f"Batch {record.step} of {record.method}, computed again, differs from its record in {folder.path}. Code, "
            "threads or libraries have changed since. Run again in a new folder."
        )


def _record(adapter: Adapter, batch: Batch, step: Step, answer: Tensor, seconds: float) -> Record:
    right, known = answer == batch.y, bool((batch.y >= 0).all())
    selected = step.samples["selected"].cpu().bool() if "selected" in step.samples else None
    names, values = list(step.info), [value.double().cpu() for value in step.info.values()]
    return Record(
        method=adapter.name,
        seed=adapter.seed,
        step=batch.step,
        domain=batch.domain,
        severity=batch.severity,
        n=len(answer),
        wrong=int((~right).sum()) if known else -1,
        seconds=round(seconds, 6),
        info=dict(zip(names, torch.stack(values).tolist(), strict=True)),
        position=batch.position,
        selected=None if selected is None else int(selected.sum()),
        selected_wrong=None if selected is None else int((selected & ~right).sum()) if known else -1,
        bins=_bins(step.samples["confidence"].double().cpu(), right),
    )


def _bins(confidence: Tensor, right: Tensor) -> tuple[tuple[int, float, int], ...]:
    """Samples, sum of confidence and correct answers in each of the equal-width bins."""
    which = (confidence * BINS).long().clamp(0, BINS - 1)
    counts, sums, correct = (
        torch.bincount(which, weights, minlength=BINS).tolist() for weights in (None, confidence, right.double())
    )
    return tuple((int(n), total, int(good)) for n, total, good in zip(counts, sums, correct, strict=True))


def _difference(old: Any, new: Any, path: str = "") -> str:
    """Where two experiments part, in words."""
    old, new = json.loads(json.dumps(old)), json.loads(json.dumps(new))
    if isinstance(old, dict) and isinstance(new, dict):
        parts = [
            _difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ]
        return ", ".join(part for part in parts if part)
    return f"{path} was {old!r}, is {new!r}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
