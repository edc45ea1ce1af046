"""Jobs, what engines tell about them, and what a worker does with one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ctta.base.errors import ConfigError, CttaError
from ctta.experiments.experiment import Experiment
from ctta.records.run_folder import Cell, Record, RunFolder
from ctta.running.runner import Opened, open_run, run_cell

LOSSES = 3  # workers that a job may lose in a row without a new batch


@dataclass(frozen=True)
class Job:
    """One cell of a run folder that is claimed."""

    experiment: Experiment
    folder: Path
    cell: Cell
    batches: int

    @property
    def name(self) -> str:
        """Its folder and its cell: no two jobs share it."""
        return f"{self.folder}/{self.cell.cell}"


@dataclass(frozen=True)
class Event:
    """How far a job is."""

    job: Job
    done: int = 0  # batches
    domain: str = ""
    over: bool = False  # complete, or failed for good
    error: str = ""  # why it failed


Events = Generator[Event, None, None]  # what an engine is asked for; closed, it ends its workers


@dataclass(frozen=True)
class Plan:
    """What is left to do."""

    jobs: tuple[Job, ...]
    batches: int  # of all cells
    done: int  # of those that are complete


@dataclass
class State:
    """How far all jobs are."""

    plan: Plan
    done: dict[str, int] = field(default_factory=dict)  # batches, by job
    over: int = 0  # jobs
    failures: list[Event] = field(default_factory=list)
    last: Event | None = None

    @property
    def batches(self) -> int:
        return self.plan.done + sum(self.done.values())


def plan(
    runs: Sequence[tuple[Experiment, RunFolder]],
    command: str = "",
    threads: int | None = None,
    told: Callable[[int], None] = lambda count: None,
) -> Plan:
    """Claim every run folder; what is wrong with any of them is said at once, and nothing is run.

    `threads` are those of a worker, since the head of a run says what made its numbers. `told` hears the count.
    """
    problems: dict[str, None] = {}
    jobs: list[Job] = []
    batches = done = 0
    with _threads(threads):
        for count, (experiment, folder) in enumerate(runs, start=1):
            try:
                opened = open_run(experiment, folder, command)
            except CttaError as error:
                problems.update(dict.fromkeys(str(error).splitlines()))
                continue
            size, left = len(opened.stream), opened.unfinished()
            jobs += [Job(experiment, folder.path.resolve(), cell, size) for cell in left]
            batches += size * len(opened.cells)
            done += size * (len(opened.cells) - len(left))
            told(count)
    if problems:
        raise ConfigError("\n".join(problems))
    return Plan(tuple(jobs), batches, done)


def follow(planned: Plan, events: Iterable[Event]) -> Iterator[State]:
    """Add up what an engine tells; the same state, after every event."""
    state = State(planned)
    for event in events:
        state.last = event
        state.done[event.job.name] = max(event.done, state.done.get(event.job.name, 0))
        state.over += event.over
        if event.error:
            state.failures.append(event)
        yield state


class Workplace:
    """Runs jobs one after the other. The last run stays open, since cells of one run follow each other."""

    def __init__(self) -> None:
        self._opened: Opened | None = None

    def run(self, job: Job, checkpoint_seconds: float) -> Iterator[Record]:
        """A job from where it was to its end; yields after every batch."""
        if self._opened is None or self._opened.folder.path != job.folder:
            self._opened = None  # frees its memory before the next one is opened
            self._opened = open_run(job.experiment, RunFolder(job.folder))
        return run_cell(self._opened, job.cell, checkpoint_seconds=checkpoint_seconds)


class Losses:
    """Counts the workers that each job has lost since it last went forward."""

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}
        self._furthest: dict[str, int] = {}

    def forward(self, job: Job, done: int) -> None:
        """A job has reached this batch."""
        if done > self._furthest.get(job.name, 0):
            self._furthest[job.name] = done
            self._lost[job.name] = 0

    def again(self, job: Job) -> bool:
        """A job has lost its worker: whether it is worth another."""
        self._lost[job.name] = self._lost.get(job.name, 0) + 1
        return self._lost[job.name] < LOSSES

    def failure(self, job: Job) -> Event:
        """The end of a job that loses every worker."""
        return Event(
            job,
            over=True,
            error=f"Its worker was lost {LOSSES} times in a row: killed from outside, or short of memory. What it had "
            "done is kept. Try fewer --workers, or smaller batches.",
        )


def explain(error: Exception) -> str:
    """A sentence where there is one; else where it happened."""
    return str(error) if isinstance(error, CttaError) else "".join(traceback.format_exception(error)).strip()


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
