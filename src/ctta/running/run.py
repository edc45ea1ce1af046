"""Run an experiment or a sweep with an engine: the one way, whether in this process, in several or on a cluster.

    for status in run(experiment, "runs/mine", Processes(workers=4)):
        print(f"{status.done} of {status.batches} batches")

All run folders are claimed first: if anything is wrong with one of them, nothing is run. Complete method runs are
skipped, others go on where they were. If one fails, the others finish all the same, and `failures` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ctta.base.errors import ConfigError, CttaError, StateError
from ctta.base.lock import locked
from ctta.core.device import deterministic
from ctta.experiments.experiment import Experiment
from ctta.experiments.sweep import Sweep
from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import SweepFolder
from ctta.running.engines.inline import Inline
from ctta.running.engines.job import Engine, Event, Job
from ctta.running.method_run import repair
from ctta.running.opening import claim, open_experiment


@dataclass(frozen=True)
class Status:
    """How far everything is."""

    folders: int  # run folders, one per experiment
    opened: int = 0  # of these
    jobs: int = 0  # method runs that were not complete at the start; known once all folders are open
    over: int = 0  # of these, complete or failed
    batches: int = 0  # of all method runs
    done: int = 0  # of these
    last: Event | None = None
    failures: tuple[Event, ...] = ()


def run_folders(what: Experiment | Sweep, path: Path | str) -> list[tuple[Experiment, RunFolder]]:
    """List an experiment, or each point of a sweep, with its run folder."""
    folder = SweepFolder(path)
    if isinstance(what, Sweep):
        return [(experiment, folder.point(slug)) for slug, experiment in what.experiments.items()]
    if folder.is_one():
        raise StateError(f"{folder.path} holds a sweep, and this is a single experiment. Give another --out.")
    return [(what, RunFolder(path))]


def run(
    what: Experiment | Sweep, path: Path | str, engine: Engine | None = None, *, command: str = ""
) -> Iterator[Status]:
    """Run what is not complete; yields after every folder that is opened and after every event of the engine."""
    runs = run_folders(what, path)
    with locked(SweepFolder.home(Path(path))):
        if isinstance(what, Sweep):
            SweepFolder(path).write(what.head)
        yield from _run(runs, engine or Inline(), command)


def _run(runs: list[tuple[Experiment, RunFolder]], engine: Engine, command: str) -> Iterator[Status]:
    errors: list[CttaError] = []
    jobs: list[Job] = []
    status, claimed = Status(len(runs)), None
    for experiment, folder in runs:
        claimed = None  # frees its memory before the next one is opened
        try:
            with deterministic(torch.device(experiment.execution.device or "cpu")):
                claimed = claim(open_experiment(experiment), folder, command, engine.threads)
            left = claimed.unfinished()
            for cell in left:
                repair(claimed, cell)
        except CttaError as error:
            errors.append(error)
            continue
        sizes = {cell.cell: claimed.opened.batches(cell) for cell in claimed.cells}
        jobs += [Job(experiment, folder.path.resolve(), cell, sizes[cell.cell]) for cell in left]
        batches = status.batches + sum(sizes.values())
        done = status.done + sum(sizes.values()) - sum(sizes[cell.cell] for cell in left)
        status = replace(status, opened=status.opened + 1, jobs=len(jobs), batches=batches, done=done)
        yield status
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ConfigError("\n".join(dict.fromkeys(line for error in errors for line in str(error).splitlines())))
    complete, reached = status.done, dict[str, int]()  # batches; a job that lost its worker begins earlier again
    claimed = claimed if len(runs) == 1 else None
    with closing(engine.run(jobs, claimed)) as events:
        for event in events:
            reached[event.job.name] = max(event.done, reached.get(event.job.name, 0))
            failures = (*status.failures, event) if event.error else status.failures
            done = complete + sum(reached.values())
            status = replace(status, over=status.over + event.over, done=done, last=event, failures=failures)
            yield status
