"""Ahead: the same results in the same order, bounded, errors in their place, no threads left."""

from __future__ import annotations

import threading
import time

import pytest

from ctta.base.prefetch import ahead


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_order_is_kept_whoever_is_faster(depth):
    def slow_first(item):
        time.sleep(0.01 if item % 3 == 0 else 0)
        return item * item

    assert list(ahead(slow_first, range(20), depth)) == [(i, i * i) for i in range(20)]
    assert not threads()


def test_it_really_works_ahead_and_no_further_than_asked():
    begun = []

    def note(item):
        begun.append(item)
        return item

    found = ahead(note, iter(range(50)), 2)
    assert not begun  # nothing before the first is wanted
    next(found)
    wait_until(lambda: len(begun) == 3)
    next(found)
    wait_until(lambda: len(begun) == 4)
    time.sleep(0.05)
    assert len(begun) == 4  # one in use, and two ahead of the two taken
    found.close()
    assert not threads()


def wait_until(ready):
    deadline = time.monotonic() + 10
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_two_are_at_work_together():
    meeting = threading.Barrier(2, timeout=10)  # breaks if one waits alone

    def meet(item):
        return meeting.wait()

    assert len(list(ahead(meet, range(4), 2))) == 4


def test_a_failure_comes_in_its_turn():
    def fail_at_three(item):
        if item == 3:
            raise ValueError("three")
        return item

    found = ahead(fail_at_three, range(10), 5)
    assert [next(found), next(found), next(found)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(ValueError, match="three"):
        next(found)
    assert not threads()
