"""The matrix of hostile streams: what its orders are, and that a cell is computed once."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import harm
from ctta.testing.networks import make_network

LABELS = torch.arange(48) % 5
DOMAINS = [(torch.rand(48, 3, 16, 16, generator=torch.Generator().manual_seed(n)), LABELS) for n in range(2)]


def labels(order: str, size: int = 8) -> list[list[int]]:
    return [y.tolist() for _, y, _ in harm.ORDERS[order](DOMAINS, size, 0)]


@pytest.mark.parametrize("order", harm.ORDERS)
def test_the_same_seed_gives_the_same_stream(order):
    one, two = (list(harm.ORDERS[order](DOMAINS, 8, 3)) for _ in range(2))
    assert len(one) == len(two)
    assert all(
        torch.equal(a, b) for left, right in zip(one, two, strict=True) for a, b in zip(left, right, strict=True)
    )


def test_orders():
    assert labels("shuffled") != labels("sorted")
    assert [label for batch in labels("sorted")[:6] for label in batch] == sorted(LABELS.tolist())
    assert labels("one class")[0] == [0] * 8
    assert len(labels("alternating")) == 12
    dead = [(x, counts) for x, _, counts in harm.ORDERS["dead sensor"](DOMAINS, 8, 0)]
    assert [bool(counts.any()) for _, counts in dead] == ([True] * 3 + [False]) * 4
    assert all(x.unique().numel() == 1 for x, counts in dead if not counts.any())
    spoiled = torch.cat([counts for _, _, counts in harm.ORDERS["poisoned"](DOMAINS, 8, 0)])
    assert 0.6 < spoiled.float().mean() < 0.95


@pytest.mark.parametrize("way", harm.WAYS)
def test_a_cell(way):
    cell = harm.Cell("tiny", "sorted", 8, "tent", way, 10, 0)
    row = harm.evaluate(make_network("image_bn").eval(), DOMAINS, cell)
    assert row["samples"] == 96
    assert 0 <= row["error"] <= 100
    assert row == harm.evaluate(make_network("image_bn").eval(), DOMAINS, cell)


def test_cells_that_are_there_are_skipped(tmp_path, monkeypatch, capsys):
    out, spec = tmp_path / "harm.jsonl", tmp_path / "spec.yaml"
    spec.write_text("data: {dataset: embedded}\nmodel: {name: embedded}\n")
    words = ["harm", str(spec), "--images", "8", "--sizes", "8", "--methods", "tent", "--rates", "1", "--seeds", "0"]
    monkeypatch.setattr(harm, "ORDERS", {"shuffled": harm.shuffled, "sorted": harm.sorted_by_class})
    monkeypatch.setattr(harm, "WAYS", ("batch",))
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    harm.main()
    first = out.read_text()
    assert [json.loads(line)["order"] for line in first.splitlines()][:2] == ["shuffled", "sorted"]
    harm.main()
    assert out.read_text() == first
    monkeypatch.setattr(sys, "argv", ["harm", "--show", "--out", str(out)])
    harm.main()
    assert "spec, 8, tent, batch, cells 4, worst" in capsys.readouterr().out
