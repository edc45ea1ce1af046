"""False alarms of the guard, and known or detected boundaries: both run, on few samples."""

from __future__ import annotations

import csv
import json
import logging
import sys

import pytest
import torch

from benchmarks import boundaries, false_alarms


@pytest.fixture(autouse=True)
def of_the_process():
    """A benchmark has a process of its own, and changes what is global in it."""
    level, threads = logging.getLogger("ctta").level, torch.get_num_threads()
    yield
    logging.getLogger("ctta").setLevel(level)
    torch.set_num_threads(threads)


def test_false_alarms_go_on_where_they_were(tmp_path, monkeypatch):
    out = tmp_path / "alarms.json"
    monkeypatch.setattr(false_alarms, "BATCHES", 3)
    monkeypatch.setattr(false_alarms, "DOMAINS", ("gaussian_blur",))
    for streams in (1, 2):
        before = json.loads(out.read_text())["streams"] if out.exists() else []
        monkeypatch.setattr(sys, "argv", ["false_alarms", "--streams", str(streams), "--out", str(out)])
        false_alarms.main()
        document = json.loads(out.read_text())
        assert document["streams"][: len(before)] == before
        assert document["seeds"] == [row["seed"] for row in document["streams"]] == list(range(streams))
    assert document["healthy"] == 2, "the unadapted weights answer so early"
    assert document["alarms"] == 0


def test_boundaries_have_a_row_each(tmp_path, monkeypatch):
    monkeypatch.setattr(boundaries, "PROTOCOLS", {"recurring": (10, {"rounds": 2})})
    monkeypatch.setattr(boundaries, "SETTINGS", {**boundaries.SETTINGS, "views": 1})
    monkeypatch.setattr(boundaries, "BATCH", 10)
    monkeypatch.setattr(sys, "argv", ["boundaries", "--out", str(tmp_path / "table")])
    boundaries.main()
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["boundaries"] for row in rows] == list(boundaries.BOUNDARIES)
    assert {row["batches"] for row in rows} == {"30"}
    assert rows[0]["detected"] == rows[1]["detected"] == "0", "only a detector detects"
