"""Whose turn it is: threads that share an adapter wait for each other, in the order in which they came.

A network keeps something in its layers while it runs (modes, what is known of the batch), so two passes at once would
disturb each other. One thread adapts; any number of others may predict, and get a turn between two batches.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from ctta.base.errors import StateError

F = TypeVar("F", bound=Callable[..., Any])


class Turns:
    """A lock that threads get in the order in which they ask for it; a thread that has it may ask again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held by the thread whose turn it is
        self._tickets = itertools.count()
        self._ends: dict[int, threading.Lock] = {}  # by ticket, held until the turn is over
        self._holder, self._adapts = 0, False

    @contextmanager
    def take(self, *, adapts: bool = False) -> Iterator[None]:
        """Wait for a turn; one that `adapts` is refused at once while another thread adapts."""
        me = threading.get_ident()
        if self._lock.locked() and self._holder == me:
            yield
            return
        if adapts and self._adapts:
            raise StateError(
                "This adapter is in the middle of a batch. Only one thread may adapt it, others may call predict() and "
                "source(): make one adapter for each stream, or hold a lock around the call."
            )
        # Each thread waits for the one before it. If an interrupt takes one out of the queue, those behind it come
        # forward, and the inner lock still lets in one at a time. Only `with` has no gap in which one would stay held.
        ticket = next(self._tickets)
        with self._ends.setdefault(ticket, threading.Lock()):
            self._ends.setdefault(ticket - 1, threading.Lock()).acquire()
            self._ends.pop(ticket - 1, None)
            with self._lock:
                try:
                    self._holder, self._adapts = me, adapts
                    yield
                finally:
                    self._holder, self._adapts = 0, False


def in_turn(method: F) -> F:
    """A method of an adapter or a guard that no other thread may disturb."""
    return _taking(method, adapts=False)


def adapts_in_turn(method: F) -> F:
    """The same for a method that learns: it is refused while another thread is in one."""
    return _taking(method, adapts=True)


def _taking(method: F, *, adapts: bool) -> F:
    @wraps(method)
    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        with self._turns.take(adapts=adapts):
            return method(self, *arguments, **options)

    return cast(F, called)
