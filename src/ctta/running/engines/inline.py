"""In this process, one job after the other."""

from __future__ import annotations

from collections.abc import Sequence

from ctta.running.engines.job import Event, Events, Job, Workplace, explain


def here(jobs: Sequence[Job], *, checkpoint_seconds: float = 30.0) -> Events:
    """Run jobs in this process; yields after every batch."""
    place = Workplace()
    for job in jobs:
        try:
            for record in place.run(job, checkpoint_seconds):
                yield Event(job, record.step + 1, record.domain)
        except Exception as error:  # models are anybody's code
            yield Event(job, over=True, error=explain(error))
        else:
            yield Event(job, job.batches, over=True)
