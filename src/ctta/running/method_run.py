"""One method run, from where it was to its end; and what makes it safe to interrupt.

Records are flushed batch by batch. The adapter's state is saved every so many seconds. After a crash the batches since
then are computed again and compared with the records that are there already; then the run goes on. Records and
checkpoints that are damaged, or that differ, are computed again, with a word about it.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from ctta.base.errors import StateError
from ctta.base.fileio import Appender, writing
from ctta.base.lock import locked
from ctta.core.device import where
from ctta.core.guard import Adapting
from ctta.experiments.build import make_adapter, source_batches
from ctta.experiments.seeds import METHOD
from ctta.records.run_folder import Cell, Done, Record, RunFolder, WrittenRecords, parse_records, problems_of
from ctta.running import checkpoint
from ctta.running.gallery import Gallery
from ctta.running.memory import PeakMemory
from ctta.running.opening import ClaimedRun
from ctta.running.runner import Evaluated, evaluate

log = logging.getLogger("ctta")

NONE = WrittenRecords()
ORPHAN_SECONDS = 20.0  # for a worker to end whose parent was killed


class DifferentRecordError(StateError):
    """A batch that was computed again differs from its record."""


def run_method(run: ClaimedRun, cell: Cell, *, checkpoint_seconds: float = 30.0) -> Iterator[Record]:
    """Run one method with one seed from where it was to its end; yields after every batch."""
    with _alone(run.folder, cell):
        if run.complete(cell):  # by a worker that was lost before it could say so
            return
        _repair(run, cell)
        try:
            yield from _go_on(run, cell, checkpoint_seconds)
            return
        except DifferentRecordError as error:
            _say_again(error, cell, 0)
            _start_over(run.folder, cell)
        yield from _go_on(run, cell, checkpoint_seconds)


def _go_on(run: ClaimedRun, cell: Cell, checkpoint_seconds: float) -> Iterator[Record]:
    experiment, folder, stream = run.opened.experiment, run.folder, run.opened.stream_of(cell)
    memory, boundaries = PeakMemory(where(run.opened.model)), experiment.data.boundaries
    adapter, gallery, known, start = _resumed(run, cell)
    clean = experiment.measure.open(experiment.data, stream)
    batches = evaluate(adapter, stream, start=start, tell=boundaries == "known", clean=clean)
    for evaluated in write_method_run(
        folder, cell.cell, adapter, batches, memory, gallery, known, run.problems, checkpoint_seconds, start
    ):
        yield evaluated.record


def repair(run: ClaimedRun, cell: Cell) -> None:
    """Take away a mark that does not fit and records that are damaged, with a word; what is sound stays."""
    with _alone(run.folder, cell):
        _repair(run, cell)


def _alone(folder: RunFolder, cell: Cell) -> AbstractContextManager[None]:
    return locked(folder.records_path(cell.cell), file=True, patience=ORPHAN_SECONDS)


def _repair(run: ClaimedRun, cell: Cell) -> None:
    folder, mark, path = run.folder, run.folder.done_path(cell.cell), run.folder.records_path(cell.cell)
    written, batches = folder.written(cell.cell), run.opened.batches(cell)
    sound = next((i for i, record in enumerate(written.records) if record.step != i), len(written.records))
    if mark.exists():
        written = written.first(0, run.misfit(cell))
    elif sound < len(written.records):
        written = written.first(sound, f"Line {sound + 1} of {path} is not batch {sound}.")
    elif sound > batches:
        written = written.first(batches, f"{path} has more records than the stream has batches.")
    if written.problem:
        _say_again(written.problem, cell, len(written.records))
    with writing(mark):
        mark.unlink(missing_ok=True)
    _cut(path, written)


def _cut(path: Path, written: WrittenRecords) -> None:
    """Take off the records file what comes after these."""
    if path.exists() and written.size < path.stat().st_size:
        with writing(path):
            os.truncate(path, written.size)


def _start_over(folder: RunFolder, cell: Cell) -> None:
    """Keep neither checkpoint nor records."""
    with writing(folder.checkpoint_path(cell.cell)):
        folder.checkpoint_path(cell.cell).unlink(missing_ok=True)
    _cut(folder.records_path(cell.cell), NONE)


def _say_again(problem: object, cell: Cell, batch: int) -> None:
    where = f"goes on after batch {batch}" if batch else "begins again from its start"
    log.warning("%s The method run %s %s.", problem, cell.cell, where)


def _resumed(run: ClaimedRun, cell: Cell) -> tuple[Adapting, Gallery, WrittenRecords, int]:
    """The adapter as its checkpoint has it, the gallery and the records so far, and the batch to go on with."""
    experiment, folder, path = run.opened.experiment, run.folder, run.folder.checkpoint_path(cell.cell)
    known = folder.written(cell.cell)

    def new() -> Adapting:
        detects = experiment.data.boundaries == "detected"
        seeded = METHOD in experiment.vary
        return make_adapter(cell, run.opened.model, experiment.execution, detects=detects, seeded=seeded)

    adapter = new()
    try:
        if saved := checkpoint.load(path):
            if saved.step > len(known.records):
                raise StateError(f"{path} is {saved.step} batches ahead, and there are {len(known.records)} records.")
            if known.sha256(saved.step).hexdigest() != saved.records_sha256:
                known = NONE
                _cut(folder.records_path(cell.cell), known)
                raise StateError(f"{folder.records_path(cell.cell)} is damaged: {path} was saved with other records.")
            adapter.load_state_dict(saved.state)
            position, samples = run.opened.stream_of(cell).position(saved.step), folder.samples(cell.cell)
            if samples is None and position > 0:
                raise StateError(f"{folder.samples_path(cell.cell)} is missing.")
            return adapter, Gallery.before(samples, position), known, saved.step
    except StateError as error:
        _say_again(error, cell, 0)
        adapter = new()
    if experiment.source is not None:
        adapter.prepare(source_batches(experiment.source, adapter))
    return adapter, Gallery(), known, 0


def write_method_run(
    folder: RunFolder,
    cell: str,
    adapter: Adapting,
    batches: Iterable[Evaluated],
    memory: PeakMemory,
    gallery: Gallery,
    known: WrittenRecords = NONE,  # those that are there already
    problems: tuple[str, ...] = (),
    checkpoint_seconds: float = math.inf,
    start: int = 0,  # the first batch
) -> Iterator[Evaluated]:
    """Write batches into the run folder as they are evaluated: records at once, the mark of completeness last."""
    last_save, path = time.monotonic(), folder.records_path(cell)
    digest = known.sha256(start)  # of the lines up to the present batch
    with Appender(path) as file:
        for evaluated in batches:
            record = evaluated.record
            gallery.keep(adapter, evaluated)
            if record.step < len(known.records):
                if not record.same(known.records[record.step]):
                    raise DifferentRecordError(
                        f"Batch {record.step} of {record.method}, computed again, differs from its record in {path}: "
                        "code, threads or libraries have changed since, or the file is damaged."
                    )
                line = known.lines[record.step]
            else:
                line = record.line
                file.write(line)
            digest.update(line)
            if time.monotonic() - last_save > checkpoint_seconds:
                gallery.write(folder, cell)
                file.flush_to_disk()
                checkpoint.save(folder.checkpoint_path(cell), adapter, record.step + 1, digest.hexdigest())
                last_save = time.monotonic()
            yield evaluated
        file.flush_to_disk()
    gallery.write(folder, cell)
    content = folder.records_content(cell)
    if hashlib.sha256(content).hexdigest() != digest.hexdigest():
        raise StateError(f"{path} was changed by somebody else while it was written. Run again: it is repaired first.")
    records = parse_records(content, path).records
    found = (*problems, *problems_of(records))
    done = Done(
        batches=len(records),
        n=sum(record.n for record in records),
        wrong=sum(wrong) if (wrong := [record.wrong for record in records if record.wrong >= 0]) else -1,
        seconds=sum(record.seconds for record in records),
        peak_memory=memory.megabytes(),
        valid=not found,
        problems=found,
        records_sha256=digest.hexdigest(),
    )
    folder.write_done(cell, done)
    with suppress(OSError):  # nobody needs it any more
        folder.checkpoint_path(cell).unlink()
