"""Network passes side by side on a CPU: threads of which each runs torch on its share of the cores.

Two passes on a core each end sooner than the same two one after the other on both cores: half of an operation that
takes a millisecond is hardly worth waking a thread for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Made = TypeVar("Made")

_here = threading.local()


def side_by_side(works: Sequence[Callable[[Item], Made]], items: Iterable[Item]) -> list[Made]:
    """What the works make of the items, in the order of the items. A work that is free takes the next one.

    Items are made one at a time and in order, by the lane that takes them, so what they draw does not depend on which
    lane is faster. A failure ends all of them, and no lane is at work any more when this returns.
    """
    if len(works) == 1 or getattr(_here, "is_lane", False):  # lanes of a lane would wait for it to be free
        return [works[0](item) for item in items]
    turn, numbered = threading.Lock(), enumerate(items)
    stop, made = threading.Event(), dict[int, Made]()

    def lane(work: Callable[[Item], Made]) -> None:
        try:
            while not stop.is_set():
                with turn:
                    taken = next(numbered, None)
                if taken is None:
                    return
                number, item = taken
                made[number] = work(item)
                del taken, item  # before the next is made
        except BaseException:
            stop.set()
            raise

    lanes = [_pool(len(works), max(1, torch.get_num_threads() // len(works))).submit(lane, work) for work in works]
    try:
        for future in lanes:
            future.result()
    finally:
        stop.set()
        wait(lanes)
    return [made[number] for number in sorted(made)]


@cache
def _pool(lanes: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay, each of which gives torch `threads` cores."""
    pool, ready = ThreadPoolExecutor(lanes, thread_name_prefix="lane"), threading.Barrier(lanes)

    def settle() -> None:
        torch.get_num_threads()  # at its first use torch gives a thread the process's number; ours comes after it
        torch.set_num_threads(threads)
        _here.is_lane = True
        ready.wait()

    common = torch.get_num_threads()
    wait([pool.submit(settle) for _ in range(lanes)])
    torch.set_num_threads(common)  # for threads to come, which take what was set last
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
