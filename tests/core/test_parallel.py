"""Parallel passes: in order, with nothing lost, and with the cores shared."""

from __future__ import annotations

import threading

import pytest
import torch

from ctta.core.parallel import run_parallel


def test_inside_a_parallel_pass_others_run_one_after_the_other():
    def nested(number: int) -> list[int]:
        return run_parallel([lambda item: item + number] * 2, range(3))

    assert run_parallel([nested] * 2, (0, 10)) == [[0, 1, 2], [10, 11, 12]]


def test_items_may_be_none():
    assert run_parallel([str, str], [1, None, 3]) == ["1", "None", "3"]


def test_items_are_made_in_order_and_results_are_in_order():
    made: list[int] = []
    later = threading.Event()

    def items():
        for number in range(20):
            made.append(number)
            yield number

    def work(number: int) -> int:
        if number == 0:
            assert later.wait(30), "nobody took the next item"
        if number == 1:
            later.set()  # the second item ends before the first
        return -number

    assert run_parallel([work, work, work], items()) == [-number for number in range(20)]
    assert made == list(range(20))


def test_works_run_at_the_same_time():
    both = threading.Barrier(2, timeout=30)
    assert sorted(run_parallel([lambda _: both.wait()] * 2, range(2))) == [0, 1]


def test_a_failure_ends_every_pass():
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    endless = iter(range(10**9))
    with pytest.raises(ValueError, match="three"):
        run_parallel([work, work], endless)
    assert next(endless) < 10**6


def test_passes_share_the_threads_and_others_keep_theirs():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert run_parallel([lambda _: torch.get_num_threads()] * 2, range(4)) == [2] * 4
        assert torch.get_num_threads() == 4
        seen: list[int] = []
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert seen == [4]
    finally:
        torch.set_num_threads(before)
