"""The matrix of hostile streams: what its orders are, and that a cell is computed once."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import harm
from ctta.data.dataset import Data
from ctta.testing.networks import make_network

DATA = Data(domains=("clean", "contrast"), images=48)


def labels(order: str, size: int = 8, seed: int = 0) -> list[list[int]]:
    return [batch.y.tolist() for batch in harm.arrange(DATA, order, size, seed)]


@pytest.mark.parametrize("order", [order for order in harm.ORDERS if order != "sorted"])
def test_seeds_are_other_streams(order):
    streams = [
        [(batch.domain, *batch.y.tolist()) for batch in harm.arrange(DATA, order, 8, seed)] for seed in (0, 0, 1, 2)
    ]
    assert streams[0] == streams[1]
    assert not streams[0] == streams[2] == streams[3]


def test_orders():
    plain = sorted(label for batch in labels("shuffled")[:6] for label in batch)
    assert [label for batch in labels("sorted")[:6] for label in batch] == plain
    first, *_ = labels("one class")
    assert first == [max(plain, key=plain.count)] * 8
    assert len(labels("alternating")) == 12
    clean = list(harm.arrange(DATA, "clean", 8, 0))
    assert [batch.domain for batch in clean] == ["clean"] * 18
    assert len({tuple(batch.y.tolist()) for batch in clean[::6]}) == 3, "each time in another order"
    dead = [batch == [-1] * 8 for batch in labels("dead sensor")]
    assert dead == [False, False, False, True] * 3 + [False] * 3
    assert [sum(label < 0 for batch in labels("poisoned")[at : at + 6] for label in batch) for at in (0, 6)] == [10, 10]


@pytest.mark.parametrize("way", harm.WAYS)
def test_a_cell(way):
    cell = harm.Cell("tiny", "poisoned", 8, "tent", way, 10, 0)
    row = harm.evaluate(make_network("image_bn").eval(), DATA, cell)
    assert row["samples"] == 76, "noise does not count"
    assert 0 <= row["error"] <= 100
    assert row == harm.evaluate(make_network("image_bn").eval(), DATA, cell)


@pytest.fixture
def run(tmp_path, monkeypatch):
    spec = tmp_path / "spec.yaml"

    def main(*words: str, sections: str = "seeds: [0]\n") -> list[dict]:
        spec.write_text(sections)
        common = ["--images", "8", "--sizes", "8", "--methods", "tent", "--seeds", "0", "--ways", "batch"]
        monkeypatch.setattr(sys, "argv", ["harm", str(spec), *common, "--out", str(tmp_path / "harm.jsonl"), *words])
        harm.main()
        return [json.loads(line) for line in (tmp_path / "harm.jsonl").read_text().splitlines()]

    return main


def test_cells_that_are_there_are_skipped(run, tmp_path, monkeypatch, capsys):
    out, words = tmp_path / "harm.jsonl", ["--orders", "shuffled", "sorted", "--rates", "10"]
    assert [(row["order"], row["rate"]) for row in run(*words)] == [
        ("shuffled", 1),
        ("shuffled", 10),
        ("sorted", 1),
        ("sorted", 10),
    ]
    first = out.read_text()
    monkeypatch.setattr(harm, "evaluate", lambda *cell: pytest.fail("it is there"))
    run(*words)
    monkeypatch.undo()
    out.write_text(first[:-20])
    run(*words)
    assert out.read_text() == first, "a line that was cut short is computed again"
    monkeypatch.setattr(sys, "argv", ["harm", "--show", "--out", str(out)])
    harm.main()
    assert "spec, 8, tent, batch, cells 4, worst" in capsys.readouterr().out


def test_a_sample_of_the_cells(run, capsys, tmp_path, monkeypatch):
    every = run("--orders", "shuffled", "sorted", "--rates", "10", "--sample", "9")
    assert len(every) == 4, "no more than there are"
    (tmp_path / "harm.jsonl").unlink()
    some = run("--orders", "shuffled", "sorted", "--rates", "10", "--sample", "2")
    assert some == every[:2], "a larger sample goes on where a smaller one ends"
    monkeypatch.setattr(sys, "argv", ["harm", "--show", "--out", str(tmp_path / "harm.jsonl")])
    harm.main()
    assert capsys.readouterr().out.splitlines()[-1].startswith("all cells, batch, cells 2, worst")


def test_a_bound_on_the_share_of_bad_cells():
    assert harm.at_most(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300)), "none of 300: at most 1 %"
    assert harm.at_most(1, 10) == pytest.approx(0.394, abs=1e-3)
    assert harm.at_most(3, 3) == 1


def test_point_clouds_have_their_own_domains(run):
    clouds = "data: {dataset: embedded_clouds}\nmodel: {name: embedded_clouds}\n"
    (row,) = run("--orders", "alternating", "--rates", "--network", "solids", sections=clouds)
    assert (row["network"], row["order"], row["samples"]) == ("solids", "alternating", 32)
    (*_, row) = run("--orders", "shuffled", "--rates", "--domains", "shear", sections=clouds)
    assert (row["network"], row["order"], row["samples"]) == ("spec", "shuffled", 8)
