"""Rules for the weight of the un-augmented batch, compared on the predictions of one run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import shares

EXPERIMENT = Path(__file__).parents[2] / "experiments/share_rule.yaml"


def test_rules_are_compared_on_the_same_predictions(tmp_path, small):
    out = tmp_path / "shares.csv"
    for name in ("one", "other"):
        shares.main([str(EXPERIMENT), *small, "--name", name, "--out", str(out)])
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * len(shares.RULES)
    half = len(rows) // 2
    assert [row | {"stream": ""} for row in rows[:half]] == [row | {"stream": ""} for row in rows[half:]]
    found = {(row["rule"], row["views"]): row for row in rows}
    assert float(found["confidence", "8"]["mean"]) == pytest.approx(
        (float(found["confidence", "8"]["fog"]) + float(found["confidence", "8"]["contrast"])) / 2, abs=0.06
    )
    assert found["always 1", "4"] | {"views": ""} == found["always 1", "8"] | {"views": ""}, "no augmentation counts"


def test_a_rule_weights_the_batch_against_its_augmentations():
    views, plain = torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]]]), torch.tensor([[0.0, 4.0]])
    assert shares.answer(views, plain, lambda *_: torch.tensor(0.25)).tolist() == [[0.75, 1.0]]
    seen = []
    shares.answer(views, plain, lambda one, other: seen.append((one, other)) or torch.tensor(0.0))
    sure = torch.tensor([4.0, 2.0, 0.0]).sigmoid()
    assert seen == [(pytest.approx(sure[0]), pytest.approx(sure[1:].mean()))]
