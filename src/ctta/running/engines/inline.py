"""In this process, one job after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ctta.running.engines.job import Events, Job, run_jobs
from ctta.running.opening import ClaimedRun


@dataclass(frozen=True)
class Inline:
    """Runs jobs in this process."""

    checkpoint_seconds: float = 30.0
    threads: ClassVar[None] = None

    def run(self, jobs: Sequence[Job], claimed: ClaimedRun | None = None) -> Events:
        return run_jobs(jobs, self.checkpoint_seconds, claimed)
