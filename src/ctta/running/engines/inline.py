"""In this process, one job after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ctta.running.engines.job import Event, Events, Job, JobRunner, explain
from ctta.running.opening import ClaimedRun


@dataclass(frozen=True)
class Inline:
    """Runs jobs in this process."""

    checkpoint_seconds: float = 30.0
    threads: ClassVar[None] = None

    def run(self, jobs: Sequence[Job], claimed: ClaimedRun | None = None) -> Events:
        runner = JobRunner(self.checkpoint_seconds, claimed)
        for job in jobs:
            try:
                for record in runner.run(job):
                    yield Event(job, record.step + 1, record.domain)
            except Exception as error:  # models are anybody's code
                yield Event(job, over=True, error=explain(error))
            else:
                yield Event(job, job.batches, over=True)
