"""Jobs, what engines report about them, and what a worker does with one."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from ctta.base.errors import CttaError
from ctta.base.text import failure
from ctta.core.device import deterministic
from ctta.experiments.experiment import Experiment
from ctta.records.run_folder import Cell, RunFolder
from ctta.running.method_run import run_method
from ctta.running.opening import ClaimedRun, claim, open_experiment

LOSSES = 3  # workers that a job may lose in a row without a new batch


@dataclass(frozen=True)
class Job:
    """One method run of a run folder that is claimed."""

    experiment: Experiment
    folder: Path
    cell: Cell
    batches: int

    @property
    def name(self) -> str:
        """Its folder and its method run: no two jobs share it."""
        return f"{self.folder}/{self.cell.cell}"

    @property
    def device(self) -> torch.device:
        """Where it is to run; without an index, any device of the kind will do."""
        return torch.device(self.experiment.execution.device or "cpu")

    def on(self, device: str) -> Job:
        """The same job on this device."""
        return replace(
            self, experiment=replace(self.experiment, execution=self.experiment.execution.replace(device=device))
        )


@dataclass(frozen=True)
class Event:
    """How far a job is."""

    job: Job
    done: int = 0  # batches
    domain: str = ""
    over: bool = False  # complete, or failed for good
    error: str = ""  # why it failed


Events = Generator[Event, None, None]  # what an engine yields; closed, it ends its workers


class Engine(Protocol):
    """Runs jobs somewhere."""

    @property
    def threads(self) -> int | None:
        """Threads of each worker, since the head of a run says what made its numbers; None: those of this process."""
        ...

    def run(self, jobs: Sequence[Job], claimed: ClaimedRun | None = None) -> Events:
        """Run all jobs; yields at least when one is over. `claimed` is their run, if they share one: open already."""
        ...


def run_jobs(jobs: Iterable[Job], checkpoint_seconds: float, claimed: ClaimedRun | None = None) -> Events:
    """Run jobs in this process, each from where it was; yields after every batch and when a job is over."""
    warm: Path | None = None  # the last run stays open and warm, since jobs of one run follow each other
    for job in jobs:
        try:
            with deterministic(job.device):
                if claimed is None or claimed.folder.path.resolve() != job.folder:
                    claimed = None  # frees its memory before the next one is opened
                    claimed = claim(open_experiment(job.experiment), RunFolder(job.folder))
                if warm != job.folder:
                    claimed.opened.warm_up()
                    warm = job.folder
                for record in run_method(claimed, job.cell, checkpoint_seconds=checkpoint_seconds):
                    yield Event(job, record.step + 1, record.domain)
        except CttaError as error:
            yield Event(job, over=True, error=str(error))
        except Exception as error:  # models are anybody's code, so it also says where
            place = traceback.extract_tb(error.__traceback__)[-1]
            yield Event(job, over=True, error=f"{failure(error)} ({place.filename}, line {place.lineno})")
        else:
            yield Event(job, job.batches, over=True)


class LostWorkers:
    """Counts the workers that each job has lost since it last went forward."""

    def __init__(self) -> None:
        self._lost, self._furthest = Counter[str](), Counter[str]()

    def forward(self, job: Job, done: int) -> None:
        """Note that a job has reached this batch."""
        if done > self._furthest[job.name]:
            self._furthest[job.name], self._lost[job.name] = done, 0

    def again(self, job: Job) -> bool:
        """Note that a job has lost its worker; returns whether it is worth another."""
        self._lost[job.name] += 1
        return self._lost[job.name] < LOSSES

    def failure(self, job: Job) -> Event:
        """The end of a job that loses every worker."""
        why = f"Its worker was lost {LOSSES} times in a row: killed from outside, or short of memory."
        advice = "What it had done is kept. Try fewer --workers, or smaller batches."
        return Event(job, over=True, error=f"{why} {advice}")
