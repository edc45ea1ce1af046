"""Parallel passes on a CPU: threads that each run torch on their part of the cores.

Two passes with one core each end sooner than the same two one after the other on both cores, because half of an
operation that takes a millisecond is hardly worth waking a thread for.
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

_thread = threading.local()


def run_parallel(works: Sequence[Callable[[Item], Made]], items: Iterable[Item]) -> list[Made]:
    """Apply the works to the items, each in a thread of its own; results are in the order of the items.

    A thread that is free takes the next item. Items are made one at a time and in order, by the thread that takes them,
    so what they draw does not depend on which thread is faster. A failure ends all threads before it is raised.
    """
    if len(works) == 1 or getattr(_thread, "is_worker", False):  # a worker that waited for workers would never end
        return [works[0](item) for item in items]
    turn, numbered = threading.Lock(), enumerate(items)
    stop, made = threading.Event(), dict[int, Made]()

    def worker(work: Callable[[Item], Made]) -> None:
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

    threads = max(1, torch.get_num_threads() // len(works))
    running = [_pool(len(works), threads).submit(worker, work) for work in works]
    try:
        for future in running:
            future.result()
    finally:
        stop.set()
        wait(running)
    return [made[number] for number in sorted(made)]


@cache
def _pool(workers: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay; each gives torch `threads` cores."""
    pool, ready = ThreadPoolExecutor(workers, thread_name_prefix="pass"), threading.Barrier(workers)

    def settle() -> None:
        torch.get_num_threads()  # at its first use torch gives a thread the process's number; ours comes after it
        torch.set_num_threads(threads)
        _thread.is_worker = True
        ready.wait()

    common = torch.get_num_threads()
    wait([pool.submit(settle) for _ in range(workers)])
    torch.set_num_threads(common)  # for threads to come, which take what was set last
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
