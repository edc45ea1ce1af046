"""Prefetch: the same results in the same order, a bounded number in flight, errors in their turn, no threads left."""

from __future__ import annotations

import threading

import pytest

from ctta.base.prefetch import prefetch

PATIENCE = 60  # seconds until a test that waits in vain fails


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 100])
def test_order_is_kept_whichever_is_faster(depth):
    finished, order = [threading.Event() for _ in range(20)], []

    def odd_first(item):
        if depth > 1 and item % 2 == 0:
            assert finished[item + 1].wait(PATIENCE)
        order.append(item)
        finished[item].set()
        return item * item

    assert list(prefetch(odd_first, range(20), depth)) == [(i, i * i) for i in range(20)]
    assert (order.index(1) < order.index(0)) == (depth > 1)
    assert not threads()


def test_the_next_items_are_begun_while_one_is_in_use_and_no_more():
    begun, taken = threading.Semaphore(0), []

    def items():
        for item in range(50):
            taken.append(item)
            yield item

    found = prefetch(lambda item: begun.release(), items(), 2)
    assert not taken, "nothing is begun before the first result is wanted"
    for number in range(3):
        next(found)
        assert len(taken) == number + 3, "one in use and two ahead"
    for _ in taken:
        assert begun.acquire(timeout=PATIENCE), "an item was taken and not begun"
    found.close()
    assert not begun.acquire(blocking=False)
    assert not threads()


def test_two_are_at_work_together():
    meeting = threading.Barrier(2, timeout=PATIENCE)  # breaks if one waits alone

    def meet(item):
        return meeting.wait()

    assert len(list(prefetch(meet, range(4), 2))) == 4


def test_a_failure_comes_in_its_turn():
    def fail_at_three(item):
        if item == 3:
            raise ValueError("three")
        return item

    found = prefetch(fail_at_three, range(10), 5)
    assert [next(found), next(found), next(found)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(ValueError, match="three"):
        next(found)
    assert not threads()
