"""Interleaved timing."""

from __future__ import annotations

from benchmarks import timing


def test_actions_take_turns_and_the_median_counts(monkeypatch):
    calls, clock = [], iter([0, 1, 10, 12, 20, 22, 30, 37, 40, 43, 50, 59])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    found = timing.medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3, warm_up=1)
    assert "".join(calls) == "ab" + "abbaab"
    # a takes 1, 7 and 3 seconds, b takes 2, 2 and 9.
    assert found == {"a": 3, "b": 2}
