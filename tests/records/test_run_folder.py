"""What is written into a run folder is what is read from it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from ctta import StateError
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder, Samples

RECORD = Record(
    *("tent", 0, 3, "fog", 5, 10, 4, 0.25),
    info={"loss": 0.1},
    position=1,
    selected=7,
    selected_wrong=2,
    bins=((4, 0.5, 3), (6, 5.5, 3)),
    clean=(20, 3, 2),
)


def test_everything_comes_back(tmp_path):
    folder = RunFolder(tmp_path / "new" / "run")
    run = Run(
        "a",
        "1f",
        {"x": 1},
        {"batch": 10, "domains": [["fog", 5]]},
        (Cell("tent-s0", "tent", "TENT", 0, "cifar10", {"lr": 0.1}),),
        {},
    )
    folder.write_run(replace(run, notes=("One.",)))
    assert folder.run() == replace(run, notes=("One.",))
    done = Done(2, 20, 4, 1.5, 60.0, valid=False, problems=("Off.",))
    folder.write_done("tent-s0", done)
    assert folder.done("tent-s0") == done
    samples = Samples(np.zeros((2, 4, 4, 3), np.uint8), *(np.arange(2),) * 4, np.ones(2), np.array([1, -1]))
    folder.write_samples("tent-s0", samples)
    for name, values in asdict(samples).items():
        assert np.array_equal(getattr(folder.samples("tent-s0"), name), values)
    assert not list(folder.path.glob(".*")), "nothing temporary is left"


def test_a_line_that_a_crash_cut_short_is_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    line = json.dumps(asdict(RECORD)) + "\n"
    folder.records_path("tent-s0").write_text(line + line[:40])
    assert list(folder.records("tent-s0")) == [RECORD]


@pytest.mark.parametrize("change", [{"wrong": 11}, {"labelled": 3}, {"labelled": 11}, {"selected": 11}])
def test_a_record_that_counts_too_much_is_damaged(tmp_path, change):
    folder = RunFolder(tmp_path)
    folder.records_path("tent-s0").write_bytes(RECORD.line + replace(RECORD, step=4, **change).line)
    assert folder.written("tent-s0").records == (RECORD,)
    assert "it counts more than its 10 samples" in folder.written("tent-s0").problem


def test_records_are_the_same_whatever_time_they_took():
    assert RECORD.same(replace(RECORD, seconds=9.0))
    assert not RECORD.same(replace(RECORD, wrong=5))


def test_what_is_not_there(tmp_path):
    folder = RunFolder(tmp_path)
    assert list(folder.records("tent-s0")) == []
    assert folder.samples("tent-s0") is folder.done("tent-s0") is None
    with pytest.raises(StateError, match=r"is not a run folder: it has no run\.json"):
        folder.run()
