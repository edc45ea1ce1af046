"""Work done while another is in use: in threads, in order, and never more than a few items of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(make: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Iterator[tuple[Item, Made]]:
    """Each item with what `make` makes of it, in order; up to `depth` more are being made meanwhile."""
    pool, waiting = ThreadPoolExecutor(depth), deque[tuple[Item, Future[Made]]]()
    try:
        for item in items:
            waiting.append((item, pool.submit(make, item)))
            if len(waiting) > depth:
                first, future = waiting.popleft()
                yield first, future.result()
        for rest, future in waiting:
            yield rest, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
