"""The streams of a home: the least recently used ones are saved and put away, and come back when they are asked for."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from ctta.base.errors import StateError
from ctta.base.text import failure
from ctta.serving.refusals import BUSY, Refused
from ctta.serving.seat import Seat
from ctta.serving.settings import ServeSettings
from ctta.serving.store import Store
from ctta.serving.stream import Stream

log = logging.getLogger("ctta")

REST = 1.0  # seconds after a save that failed in which nothing is saved unless somebody asks for it


class Streams:
    """Streams by name. Only the worker calls what changes them."""

    def __init__(self, seat: Seat, store: Store, settings: ServeSettings, failed: Callable[[], None]) -> None:
        self.seat, self.store, self.settings, self._failed = seat, store, settings, failed
        self._rests_until = 0.0
        self.resident: OrderedDict[str, Stream] = OrderedDict()  # the least recently used one first

    def get(self, name: str) -> Stream:
        """The stream of this name: in memory, put away, or new."""
        stream = self.resident.get(name)
        if stream is None:
            stream = self._read(name) if name in self.store.names else self._new(name)
            self.resident[name] = stream
        self.resident.move_to_end(name)
        stream.used = time.monotonic()
        return stream

    def known(self, name: str) -> bool:
        return name in self.resident or name in self.store.names

    def names(self) -> list[str]:
        """All streams, those that were used last before the others."""
        resident = list(self.resident)[::-1]
        return [*resident, *sorted(self.store.names.difference(resident))]

    @property
    def bytes(self) -> int:
        return sum(stream.size for stream in list(self.resident.values()))

    def make_room(self) -> None:
        """Put streams away until the rest is within the limits; the one that was used last stays."""
        most, size = self.settings.streams, self.settings.stream_bytes
        for name in list(self.resident)[:-1]:
            if len(self.resident) <= most and self.bytes <= size:
                return
            if not self.resident[name].unsaved or not self._rests:
                self.put_away(name)

    def put_away(self, name: str) -> None:
        """Save a stream and take it out of memory; it stays there if it cannot be saved."""
        stream = self.resident[name]
        if self.seat.sitting is stream:
            self.seat.leave()
        if not stream.unsaved or self.save(stream):
            del self.resident[name]

    def save(self, stream: Stream) -> bool:
        """Write a stream to its file; a disk that fails is an event, and it is tried again later."""
        if self.seat.sitting is stream:
            self.seat.keep()
        try:
            self.store.write(stream.name, stream.saved())
        except Exception as error:  # as many kinds as there are ways to fail; the worker must go on
            stream.unsaved_since = time.monotonic()  # others that wait come first
            self._rests_until = stream.unsaved_since + REST
            stream.tell("not saved", failure(error))
            log.error("stream %s could not be saved: %s", stream.name, failure(error))
            self._failed()
            return False
        stream.unsaved = 0
        return True

    def save_after_updates(self, stream: Stream) -> None:
        """Save a stream that has changed so often that it must not be lost."""
        if stream.unsaved >= self.settings.save_updates and not self._rests:
            self.save(stream)

    @property
    def _rests(self) -> bool:
        """Whether the disk has just failed."""
        return time.monotonic() < self._rests_until

    def save_after_time(self) -> float | None:
        """Save the stream that has waited longest, if it is time; gives the seconds until the next one, if any.

        One at a time, so that requests do not wait for the disk any longer.
        """
        waiting = [stream for stream in self.resident.values() if stream.unsaved]
        if not waiting:
            return None
        oldest = min(waiting, key=lambda stream: stream.unsaved_since)
        due = max(oldest.unsaved_since + self.settings.save_seconds, self._rests_until)
        if (left := due - time.monotonic()) > 0:
            return left
        self.save(oldest)
        return 0.0

    def delete(self, name: str) -> None:
        """Forget a stream, in memory and on disk."""
        if (stream := self.resident.pop(name, None)) is not None:
            self.seat.drop(stream)
        self.store.delete(name)

    def _new(self, name: str) -> Stream:
        known = len(self.store.names.union(self.resident))
        if known >= self.settings.stored:
            raise Refused(
                BUSY,
                f"There are {known} streams, the limit. Use one of them, or delete some: DELETE /streams/NAME.",
                retry_after=60,
            )
        stream = Stream(name)
        self.seat.reset(stream)
        return stream

    def _read(self, name: str) -> Stream:
        found = self.store.read(name)
        try:
            if found["state"] is not None:
                self.seat.adapter.check_stream_state(found["state"])
            return Stream.restored(name, found)
        except (KeyError, TypeError, AttributeError, StateError) as error:
            raise StateError(
                f"What is stored of stream {name!r} cannot be used ({failure(error)}). DELETE /streams/{name} removes "
                "it, so that the stream begins anew."
            ) from error
