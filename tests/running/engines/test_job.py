"""When a job that loses its workers is given up."""

from __future__ import annotations

from pathlib import Path

from ctta.experiments import experiment as experiments
from ctta.records.run_folder import Cell
from ctta.running.engines.job import LOSSES, Job, LostWorkers


def test_a_job_is_given_up_when_it_no_longer_goes_forward():
    job = Job(experiments.make({"methods": ["source"]}), Path("run"), Cell("a-s0", "a", "A", 0, "", {}), 10)
    lost = LostWorkers()
    assert [lost.again(job) for _ in range(LOSSES)] == [True] * (LOSSES - 1) + [False]
    lost = LostWorkers()
    for done in range(1, 9):
        lost.forward(job, done)
        assert lost.again(job)
    for _ in range(LOSSES - 2):
        lost.forward(job, 8)  # the same batch again is no way forward
        assert lost.again(job)
    assert not lost.again(job)
    assert lost.failure(job).over
