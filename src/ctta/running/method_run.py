"""One method run, from where it was to its end; and what makes it safe to interrupt.

Records are flushed batch by batch. The adapter's state is saved every so many seconds. After a crash the batches since
then are computed again and must equal the records that are there already; then the run goes on.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from ctta.base.errors import StateError
from ctta.core.adapter import Adapter
from ctta.experiments.build import make_adapter, source_batches
from ctta.records.run_folder import Cell, Done, Record, RunFolder
from ctta.running import checkpoint
from ctta.running.gallery import Gallery
from ctta.running.memory import PeakMemory
from ctta.running.opening import ClaimedRun
from ctta.running.runner import Evaluated, evaluate


def run_method(run: ClaimedRun, cell: Cell, *, checkpoint_seconds: float = 30.0) -> Iterator[Record]:
    """Run one method with one seed from where it was to its end; yields after every batch."""
    experiment, folder, stream = run.opened.experiment, run.folder, run.opened.stream
    memory, boundaries = PeakMemory(), experiment.data.boundaries
    adapter = make_adapter(cell, run.opened.model, experiment.execution, detects=boundaries == "detected")
    known = _whole_records(folder, cell.cell)
    start, saved = 0, checkpoint.load(folder.checkpoint_path(cell.cell))
    if saved is not None and saved["step"] <= len(known):  # else records are lost: the method run begins again
        adapter.load_state_dict(saved["state"])
        start = saved["step"]
    elif experiment.source is not None:
        adapter.prepare(source_batches(experiment.source, adapter))
    gallery = Gallery.before(folder.samples(cell.cell), stream.position(start))
    clean = experiment.measure.open(experiment.data, stream)
    batches = evaluate(adapter, stream, start=start, tell=boundaries == "known", clean=clean)
    for evaluated in write_method_run(
        folder, cell.cell, adapter, batches, memory, gallery, known, run.problems, checkpoint_seconds
    ):
        yield evaluated.record


def write_method_run(
    folder: RunFolder,
    cell: str,
    adapter: Adapter,
    batches: Iterable[Evaluated],
    memory: PeakMemory,
    gallery: Gallery,
    known: Sequence[Record] = (),  # the records that are there already
    problems: tuple[str, ...] = (),
    checkpoint_seconds: float = math.inf,
) -> Iterator[Evaluated]:
    """Write batches into the run folder as they are evaluated: records at once, the mark of completeness last."""
    last_save = time.monotonic()
    with folder.records_path(cell).open("a") as file:
        for evaluated in batches:
            record = evaluated.record
            gallery.keep(adapter, evaluated)
            if record.step < len(known):
                if not record.same(known[record.step]):
                    raise StateError(
                        f"Batch {record.step} of {record.method}, computed again, differs from its record in "
                        f"{folder.path}. Code, threads or libraries have changed since. Run again in a new folder."
                    )
            else:
                file.write(json.dumps(asdict(record)) + "\n")
                file.flush()
            if time.monotonic() - last_save > checkpoint_seconds:
                gallery.write(folder, cell)
                checkpoint.save(folder.checkpoint_path(cell), adapter, record.step + 1)
                last_save = time.monotonic()
            yield evaluated
    gallery.write(folder, cell)
    records = list(folder.records(cell))
    done = Done(
        batches=len(records),
        n=sum(record.n for record in records),
        wrong=-1 if any(record.wrong < 0 for record in records) else sum(record.wrong for record in records),
        seconds=sum(record.seconds for record in records),
        peak_memory=memory.megabytes(),
        valid=not problems,
        problems=problems,
    )
    folder.write_done(cell, done)
    folder.checkpoint_path(cell).unlink(missing_ok=True)


def _whole_records(folder: RunFolder, cell: str) -> list[Record]:
    """The records that are there; a line that a crash cut short is taken off the file."""
    path = folder.records_path(cell)
    if path.is_file():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    return list(folder.records(cell))
