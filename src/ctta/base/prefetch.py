"""Prefetch in threads, in order, at most `depth` items in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def prefetch(make: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Iterator[tuple[Item, Made]]:
    """Each item with what `make` makes of it, in order; the next `depth` items are at work while one is in use.

    A failure comes when its item is due, after all before it. Whoever stops early leaves no thread behind.
    """
    if depth < 1:
        yield from ((item, make(item)) for item in items)
        return
    pool = ThreadPoolExecutor(depth, thread_name_prefix="prefetch")
    begun: deque[tuple[Item, Future[Made]]] = deque()
    try:
        for item in items:
            begun.append((item, pool.submit(make, item)))
            if len(begun) > depth:
                due, future = begun.popleft()
                yield due, future.result()
        while begun:
            due, future = begun.popleft()
            yield due, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
