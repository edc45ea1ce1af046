"""What a benchmark writes beside its numbers says where they come from."""

from __future__ import annotations

import json
import sys

from benchmarks import origin


def test_it_names_command_seeds_files_and_environment(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["/any/python", "-m", "benchmarks.drift", "--out", "a b.json"])
    found = origin.origin(origin.embedded(), range(2))
    assert found["command"] == "python -m benchmarks.drift --out 'a b.json'"
    assert found["seeds"] == [0, 1]
    assert set(found["files"]) == {"data", "weights"}
    assert found["environment"]["torch"]


def test_a_table_lists_every_command_once(tmp_path):
    table = tmp_path / "harm.jsonl"
    assert origin.origins(table) == []
    for seeds in ([0], [0], [1]):
        origin.add_origin(table, origin.origin({"weights": "random"}, seeds))
    assert [run["seeds"] for run in origin.origins(table)] == [[0], [1]]
    assert json.loads((tmp_path / "harm.json").read_text())["runs"] == origin.origins(table)
