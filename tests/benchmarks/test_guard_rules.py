"""Rules of harm at an equal rate of false alarms: their scores in numbers, and a small run."""

from __future__ import annotations

import csv
import json
import math

import pytest
import torch
from torch import Tensor

from benchmarks import guard_rules as rules

SURE, UNSURE = 50 * torch.eye(4), torch.zeros(4, 4)


def scores(rule: rules.Rule, *batches: tuple[Tensor, Tensor]) -> list[float]:
    return [rule.score(rules.Seen(logits, reference, lambda: UNSURE.expand(3, 4, 4))) for logits, reference in batches]


def test_scores_in_numbers():
    one_class = SURE[[0, 0, 0, 0]]
    full = math.log(4)
    # The mean of four sure answers is even; that of one class is sure. A reference that is sure has no doubt.
    assert scores(rules.Narrowing(), (one_class, SURE), (SURE, SURE)) == pytest.approx([0.98, 0.96], abs=1e-4)
    assert scores(rules.Ours(), (one_class, SURE), (SURE, SURE)) == pytest.approx([3 - 0.4, 2.6 - 0.4], abs=1e-4)
    # ln 2 at the start; three of four answers differ, so that the average moves by 0.15 / 4 towards 0.
    average = math.log(2) * (1 - 0.15 / 4)
    assert scores(rules.Asr(), (one_class, SURE), (SURE, SURE)) == pytest.approx([1, 1 - full / average], abs=1e-4)
    assert scores(rules.Sar(), (UNSURE, SURE), (SURE, SURE)) == pytest.approx([-math.inf, 0], abs=1e-4)
    doubt = torch.tensor([[math.log(9.0), 0.0]])
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert scores(rules.Sar(), (20 * doubt, doubt), (doubt, doubt))[1] == pytest.approx(0, abs=1e-4), "0.33 > 0.4 ln 2"
    assert entropy > 0.4 * math.log(2)
    assert scores(rules.RDumb(), (SURE, SURE), (SURE, SURE)) == [1, 2]


def test_aetta_in_numbers():
    # Labels 0 to 3; the first pass under dropout agrees, the second gives class 0 always: 3 of 8 differ.
    passes = torch.stack([SURE, SURE, SURE[[0, 0, 0, 0]]])
    mean = [5 / 8, 1 / 8, 1 / 8, 1 / 8]
    spread = -sum(share * math.log(share) for share in mean) / math.log(4)
    assert rules.dropout_error(passes) == pytest.approx(min(0.375 / spread**3, 0.75))
    assert rules.dropout_error(SURE.expand(3, 4, 4)) == 0
    assert rules.dropout_error(torch.stack([SURE, *[SURE[[0, 0, 0, 0]]] * 2])) == 0.75, "all but chance"


def row(wrong: list[int], reference: list[int], score: list[float | None]) -> dict:
    return {"n": [20] * len(wrong), "wrong": wrong, "reference": reference, "scores": {"ours": score}}


def test_the_referee():
    """One wrong answer in twenty is slack: 5 + 5 + 5 of them beyond it are more than 10, and begin at batch 2."""
    harmful = row([3, 3, 9, 9, 9, 9], [3, 3, 3, 3, 3, 3], [None, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert rules.onset(harmful) == 2
    assert rules.onset(row([4] * 6, [3] * 6, [])) is None
    assert rules.calibrated([harmful, row([3], [3], [2.0])], "ours") == 5
    assert rules.first_alarm(harmful, "ours", 3.5) == 4
    assert rules.first_alarm(harmful, "ours", 0.5) == 1
    assert rules.first_alarm(harmful, "ours", 0.5, start=2) == 2
    assert rules.first_alarm(harmful, "ours", 5) is None


@pytest.mark.slow
def test_a_small_run_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    for name, value in {"IMAGES": 12, "DOMAINS": 1, "BATCH": 6, "PASSES": 2, "HARM": 0.5}.items():
        monkeypatch.setattr(rules, name, value)
    monkeypatch.setattr(rules, "EXTRA", ("saturate",))
    monkeypatch.setattr(rules, "PAPER", ("contrast",))
    spec, work = tmp_path / "spec.yaml", tmp_path / "work.jsonl"
    spec.write_text("data: {dataset: embedded}\nmodel: {name: embedded}\n")
    words = [str(spec), "--work", str(work), "--seeds", "1", "1", "1"]
    rules.main([*words, "--seconds", "0"])
    assert not work.exists()
    rules.main(words)
    lines = work.read_text().splitlines()
    watched = [one for one in map(json.loads, lines) if not one["acts"]]
    assert [one["purpose"] for one in watched] == ["calibration"] * 2 + ["harmful"] * 9 + ["held out"] * 2
    assert watched[0]["scores"].keys() == rules.RULES.keys()
    work.write_text("".join(f"{line}\n" for line in lines[:-3]))
    rules.main(words)
    assert work.read_text().splitlines() == lines, "the same again, bit for bit"
    assert capsys.readouterr().out.split("\n")[:3] == ["more is left to run", "all is there", "all is there"]
    rules.main(["--work", str(work), "--table", str(tmp_path / "table")])
    table = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {line["rule"] for line in table} == {*rules.RULES, "guard"}
    assert all(line["false_alarms"] == "0 of 2" for line in table if line["limit"] == "calibrated")
    assert len(json.loads((tmp_path / "table.json").read_text())["streams"]) == len(lines)
