"""Errors per round of a recurring stream."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.rounds import errors


def test_batches_are_counted_by_the_round_of_their_domain():
    batches = [(0, 1, 10), (1, 4, 10), (1, 0, 5), (2, 10, 10), (3, 5, 10)]  # position, wrong, samples
    records = [SimpleNamespace(position=position, wrong=wrong, n=n) for position, wrong, n in batches]
    assert errors(records, domains=2) == [20.0, 75.0]
    assert errors(records, domains=3) == [42.9, 50.0]
