"""Interleaved timing: on a busy machine, a ratio of interleaved medians is more reliable than absolute times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Action = Callable[[], object]


def medians(actions: Mapping[str, Action], *, rounds: int = 15, warm_up: int = 2) -> dict[str, float]:
    """Median seconds of each action. Each one runs once per round, in reverse order in every second round."""
    for _ in range(warm_up):
        for action in actions.values():
            action()
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds):
        names = list(actions)[:: 1 if turn % 2 == 0 else -1]
        for name in names:
            start = time.perf_counter()
            actions[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
