"""The drift detector, measured on few samples. What is counted, in numbers: tests/core/test_drift.py."""

from __future__ import annotations

import json
import sys

from benchmarks import drift


def test_every_protocol_is_measured(tmp_path, monkeypatch):
    few = {"dataset": "embedded", "domains": ["fog", "contrast"], "images": 20}
    monkeypatch.setattr(drift, "SUITES", {"few": few})
    monkeypatch.setattr(drift, "BATCHES", (10,))
    monkeypatch.setattr(sys, "argv", ["drift", "--out", str(tmp_path / "drift.json")])
    drift.main()
    document = json.loads((tmp_path / "drift.json").read_text())
    rows = {row["protocol"]: row for row in document["rows"]}
    assert rows.keys() == {*drift.PROTOCOLS, "drift"}
    assert rows["continual"]["boundaries"] == rows["continual"]["streams"]
    assert document["files"].keys() == {"data", "weights"}
    assert document["command"].startswith("python ")
    assert all(row["found"] <= row["boundaries"] or row["protocol"] == "drift" for row in document["rows"])
