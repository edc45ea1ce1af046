"""Requests that wait: collected into batches per stream, in the order in which they came, and bounded in number."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ctta.serving.messages import Question
from ctta.serving.refusals import BUSY, CLOSING, Refused


@dataclass
class Waiting:
    """A question, or an action on a stream, and the one who waits for its result."""

    stream: str
    work: Question | str
    deadline: float
    result: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    @property
    def samples(self) -> int:
        return len(self.work.x) if isinstance(self.work, Question) else 0

    def joins(self, other: Waiting) -> bool:
        """Whether this may come into the same batch, behind the other one."""
        mine, theirs = self.work, other.work
        if not isinstance(mine, Question) or not isinstance(theirs, Question):
            return False
        alike = (mine.adapt, mine.source) == (theirs.adapt, theirs.source) and mine.x.shape[1:] == theirs.x.shape[1:]
        return alike and not mine.start and not theirs.end


class Queue:
    """Each stream has a line of its own; what is taken is one batch of one stream, or one action."""

    def __init__(self, batch: int, max_delay: float, most: int, most_of_stream: int) -> None:
        self.batch, self.max_delay, self.most, self.most_of_stream = batch, max_delay, most, most_of_stream
        self.seconds = 0.05  # of a batch, as far as is known
        self._lines: dict[str, deque[Waiting]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, list(self._lines.values())))

    def put(self, waiting: Waiting) -> None:
        """Wait in the line of the stream; refused if the line or all lines are full."""
        with self._changed:
            if self._closed:
                raise Refused(CLOSING, "The service is about to end. Ask another one, or later.", retry_after=5)
            line, all_waiting = self._lines.get(waiting.stream, ()), len(self)
            if len(line) >= self.most_of_stream or all_waiting >= self.most:
                where = f"of stream {waiting.stream!r} " if len(line) >= self.most_of_stream else ""
                number = len(line) if where else all_waiting
                again = max(1, round(number * self.seconds))
                raise Refused(BUSY, f"{number} requests {where}wait already. Ask again in {again} s.", again)
            self._lines.setdefault(waiting.stream, deque()).append(waiting)
            self._changed.notify()

    def take(self, idle: Callable[[], float | None]) -> list[Waiting]:
        """Wait for a batch; empty if the queue is closed. `idle` is called before, and says when to call it again."""
        while True:
            until = idle()
            with self._changed:
                now = time.monotonic()
                ready = [(line[0].since, name) for name, line in self._lines.items() if self._wait(line, now) <= 0]
                if ready:
                    return list(self._cut(min(ready)[1]))
                if self._closed and not self._lines:
                    return []
                waits = [self._wait(line, now) for line in self._lines.values()]
                self._changed.wait(min([*waits, *([] if until is None else [until])], default=None))

    def close(self) -> None:
        """Take in no more; what waits is ready at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wait(self, line: deque[Waiting], now: float) -> float:
        """Seconds until the head of a line is due."""
        if self._closed or isinstance(line[0].work, str) or self._gathered(line) >= self.batch:
            return 0.0
        return line[0].since + self.max_delay - now

    def _gathered(self, line: deque[Waiting]) -> int:
        """Samples at the head of a line that can be one batch; `batch` if no more can join them."""
        samples = line[0].samples
        for before, waiting in zip(line, list(line)[1:], strict=False):
            if not waiting.joins(before) or samples + waiting.samples > self.batch:
                return self.batch
            samples += waiting.samples
        return samples

    def _cut(self, name: str) -> Iterator[Waiting]:
        line, samples = self._lines[name], 0
        last: Waiting | None = None
        while line and (last is None or (line[0].joins(last) and samples + line[0].samples <= self.batch)):
            last = line.popleft()
            samples += last.samples
            yield last
        if not line:
            del self._lines[name]
