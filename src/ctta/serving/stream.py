"""One stream: what it has learned, what is known about it, and what happened to it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ctta.serving.messages import Report, Told

POINTS, EVENTS = 240, 100  # that are kept per stream
LAST = ("confidence", "source_confidence", "seconds")  # what a list of streams shows of the last points

State = Mapping[str, Any]
Point = dict[str, float | None]  # what is known of a batch
POINT = (
    *("step", "samples", "seconds", "confidence", "source_confidence", "entropy"),
    *("threshold", "selected", "disagreement", "boundary", "guard"),
)


class History:
    """The last points of a stream, in few bytes."""

    def __init__(self) -> None:
        self._rows = np.full((POINTS, len(POINT)), np.nan, np.float32)
        self._count = 0

    def append(self, point: Point) -> None:
        self._rows[self._count % POINTS] = [np.nan if (value := point[name]) is None else value for name in POINT]
        self._count += 1

    def clear(self) -> None:
        self._count = 0

    def points(self) -> list[Point]:
        """The oldest one first."""
        known = (zip(POINT, row, strict=True) for row in self._ordered().tolist())
        return [{name: None if value != value else value for name, value in pairs} for pairs in known]

    def last(self, name: str) -> float | None:
        """The last value that is known."""
        values = self._ordered()[:, POINT.index(name)]
        known = values[~np.isnan(values)]
        return float(known[-1]) if known.size else None

    def _ordered(self) -> NDArray[np.float32]:
        return self._rows[np.arange(max(0, self._count - POINTS), self._count) % POINTS]


@dataclass(frozen=True)
class Seen:
    """A picture of the stream with the answers to it."""

    picture: Any  # uint8 (H, W, 3)
    label: int
    confidence: float
    source_label: int
    source_confidence: float


@dataclass
class Stream:
    """What a service knows of a stream. Only the worker changes it; others read."""

    name: str
    state: State | None = None  # as `stream_state` gave it; None: as at the start
    step: int = 0
    version: int = 0
    frozen: bool = False  # by somebody who asked for it
    guard: str = "ok"
    size: int = 0  # bytes
    unsaved: int = 0  # changes since the last save
    unsaved_since: float = 0.0
    used: float = field(default_factory=time.monotonic)
    next_event: int = 1
    history: History = field(default_factory=History)
    events: deque[Told] = field(default_factory=lambda: deque(maxlen=EVENTS))
    seen: deque[Seen] = field(default_factory=deque)

    def tell(self, kind: str, words: str) -> Told:
        told = Told(self.next_event, time.time(), self.step, kind, words)
        self.next_event += 1
        self.events.append(told)
        return told

    def changed(self, *, weights: bool) -> None:
        """Count a change that is to be saved, and a version if weights have changed."""
        if not self.unsaved:
            self.unsaved_since = time.monotonic()
        self.version += weights
        self.unsaved += 1

    def remember(self, state: State) -> None:
        self.state, self.size = state, bytes_of(state)

    def saved(self) -> dict[str, Any]:
        """What is written to its file."""
        counts = {name: getattr(self, name) for name in ("step", "version", "frozen", "guard", "next_event")}
        return {**counts, "state": self.state, "events": [asdict(told) for told in self.events]}

    @classmethod
    def restored(cls, name: str, found: Mapping[str, Any]) -> Stream:
        """From what `saved` gave; its state has been checked."""
        made = cls(name, **{key: found[key] for key in ("step", "version", "frozen", "guard", "next_event")})
        made.events.extend(Told(**told) for told in found["events"])
        if found["state"] is not None:
            made.remember(found["state"])
        return made

    def summary(self) -> Report:
        """What a list of streams shows."""
        return {
            "name": self.name,
            "resident": True,
            "step": self.step,
            "version": self.version,
            "guard": self.guard,
            "frozen": self.frozen,
            "unsaved_updates": self.unsaved,
            "bytes": self.size,
            "idle_seconds": round(time.monotonic() - self.used, 3),
            **{name: self.history.last(name) for name in LAST},
        }


def bytes_of(value: Any) -> int:
    """The bytes of all tensors in it."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(bytes_of, value.values()))
    return sum(map(bytes_of, value)) if isinstance(value, list | tuple) else 0
