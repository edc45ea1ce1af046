"""What is written to a tracker, worked by hand."""

from __future__ import annotations

import pytest

from ctta.records.run_folder import Cell, Done, Record, Run
from ctta.report.trackers.backend import batch_rows, final_row, parameters


def record(step, wrong, *, domain="fog", selected=None, **info):
    return Record("dss", 0, step, domain, 5, 10, wrong, 0.5, info, selected=selected)


def test_rows_by_hand():
    records = [
        record(0, 4, selected=5, confidence=0.75, selected_share=0.5),
        record(1, 1, selected=8, loss=float("nan")),
        record(2, 2, domain="my snow/5"),
    ]
    rows = list(batch_rows(records))
    assert [step for step, _ in rows] == [0, 1, 2]
    assert rows[0][1] == {
        "batch/confidence": 0.75,
        "batch/selected_share": 0.5,
        "batch/error": 40.0,
        "batch/running_error": 40.0,
        "batch/selected": 50.0,
        "batch/seconds": 0.5,
    }
    assert rows[1][1] == {
        "batch/error": 10.0,
        "batch/running_error": 25.0,
        "batch/selected": 80.0,
        "batch/seconds": 0.5,
    }
    assert rows[2][1]["batch/running_error"] == pytest.approx(70 / 3)
    step, row = final_row(records, Done(3, 30, 7, 1.5, 12.0, valid=False, problems=("off",)))
    assert step == 3
    assert row == {
        "domain/fog": 25.0,
        "domain/my_snow_5": 20.0,
        "final/error": pytest.approx(70 / 3),
        "final/seconds": 1.5,
        "final/peak_memory": 12.0,
        "final/valid": 0.0,
    }


def test_without_labels_there_is_no_error():
    records = [record(0, -1, confidence=0.5)]
    assert list(batch_rows(records)) == [(0, {"batch/confidence": 0.5, "batch/seconds": 0.5})]
    _, row = final_row(records, Done(1, 10, -1, 0.5, 1.0))
    assert set(row) == {"final/seconds", "final/peak_memory", "final/valid"}


def test_parameters_are_flat_and_plain():
    run = Run("mine", "abc", {}, {"dataset": "x", "batch": 20, "protocol": {"kind": "recurring"}}, (), {})
    cell = Cell("dss-s1", "dss", "DSS", 1, "cifar10", {"lr": 0.1, "layers": ["a"], "gate": None, "lean": True})
    assert parameters(run, cell) == {
        "experiment": "mine",
        "identity": "abc",
        "dataset": "x",
        "batch": 20,
        "protocol.kind": "recurring",
        "label": "DSS",
        "method": "dss",
        "seed": 1,
        "preset": "cifar10",
        "config.lr": 0.1,
        "config.layers": '["a"]',
        "config.gate": "null",
        "config.lean": True,
    }
