"""The cost of the guard is measured on steps that it compares as in a long stream."""

from __future__ import annotations

import json

import pytest

from benchmarks import guard_cost


def test_rows(tmp_path, monkeypatch, capsys):
    out = tmp_path / "cost.json"
    monkeypatch.setattr(
        "sys.argv", ["guard_cost", "--methods", "tent", "--batch", "8", "--rounds", "1", "--out", str(out)]
    )
    guard_cost.main()
    written = json.loads(out.read_text())
    (row,) = written["rows"]
    assert row["method"] == "tent"
    assert row["ratio"] > 0
    assert "of a step without the guard" in capsys.readouterr().out


def test_one_of_three_batches_is_compared(monkeypatch):
    """A turn is one rhythm of the guard."""
    asked = []
    step = guard_cost.Adapter.step
    monkeypatch.setattr(
        guard_cost.Adapter,
        "step",
        lambda self, x, **wanted: asked.append(wanted.get("reference", False)) or step(self, x, **wanted),
    )
    guard_cost.measure("source", 8, 2)
    assert sum(asked[-12:]) == 2, "two turns of three batches, each with and without the guard"
    with pytest.raises(KeyError):
        guard_cost.measure("nothing", 8, 1)
