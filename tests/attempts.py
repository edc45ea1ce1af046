"""Counts attempts to break the software: the tests of `hostile/` say how many they made, and the end of a run adds up.

Every attempt ends in one of two ways: the software goes on as if nothing had happened, or it says in a sentence what
was wrong, what was expected and what to do. Nothing computed is lost, and no state is half changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

ATTEMPT = "hostile attempt"


@pytest.fixture
def attempt(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """`attempt("broken configurations")`, once per attempt, or with how many at the end."""

    def count(kind: str, number: int = 1) -> None:
        record_property(ATTEMPT, [kind, number])

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == ATTEMPT:
                counts[value[0]] += value[1]
    if counts:
        terminalreporter.section("attempts to break the software that failed to")
        for kind, number in sorted(counts.items()):
            terminalreporter.write_line(f"{number:6d}  {kind}")
        terminalreporter.write_line(f"{sum(counts.values()):6d}  in all")
