"""When a job that loses its workers is given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctta import InputError
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import Cell
from ctta.running.engines.job import LOSSES, Job, LostWorkers, explain


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


def test_errors_of_ours_are_a_sentence_and_others_say_where():
    assert explain(InputError("It is empty.")) == "It is empty."
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert "test_job.py" in explain(caught.value)
