"""A home of streams: the adapter, the streams and the one thread that changes them.

    home = Home(settings)
    answer = home.ask(Question("porch", x)).result()
    home.close()

Everything that goes in and comes out is plain data, so a home can be in another process.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from ctta.base import fileio
from ctta.base.errors import CttaError
from ctta.base.lock import locked
from ctta.base.text import quoted
from ctta.core.guard import Guard
from ctta.core.guard_state import Event
from ctta.serving.messages import ACTIONS, Answer, Question, Report
from ctta.serving.metrics import Metrics
from ctta.serving.queue import Queue, Waiting
from ctta.serving.refusals import CLOSING, LATE, UNKNOWN, Refused
from ctta.serving.seat import NOT_ASKED, ROLL_BACKS, Processed, Seat
from ctta.serving.served import open_served
from ctta.serving.settings import ServeSettings
from ctta.serving.store import Store
from ctta.serving.stream import Seen, Stream
from ctta.serving.streams import Streams
from ctta.serving.thumbnails import small, thumbnail

log = logging.getLogger("ctta")


class Home:
    """Streams, and the worker that answers their questions one batch after the other."""

    def __init__(self, settings: ServeSettings, *, shared: bool = False) -> None:
        """Load the model and open the folder of states; `shared`: the caller sees that no other home writes there."""
        self.settings = settings
        adapter, self.served, about = open_served(settings)
        self.metrics = Metrics(settings.name, settings.method, settings.labelled_streams)
        self._resources = ExitStack()
        folder = settings.state or self._resources.enter_context(tempfile.TemporaryDirectory(prefix="ctta-streams-"))
        if not shared:
            self._resources.enter_context(locked(fileio.home(folder)))
        seat = Seat(adapter, self._guard_event)
        self.streams = Streams(seat, self._store(folder, about), settings, self.metrics.save_failed)
        self.queue = Queue(settings.batch, settings.max_delay, settings.queue, settings.stream_queue)
        self.metrics.streams = lambda: list(self.streams.resident.values())[::-1]
        self.metrics.sizes = self._sizes
        self._thread = threading.Thread(target=self._work, name="ctta-worker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer what waits, save all streams, and let go of the folder."""
        self.queue.close()
        self._thread.join()
        self._resources.close()

    def _store(self, folder: str, about: Mapping[str, Any]) -> Store:
        try:
            return Store(folder, about)
        except CttaError:
            self._resources.close()
            raise

    # Called by any thread.

    def ask(self, question: Question) -> Future[Answer]:
        """Put a question into the line of its stream."""
        self.served.check(question.x, self.settings.samples)
        wait = min(question.timeout or self.settings.deadline, self.settings.deadline)
        return self._put(Waiting(question.stream, question, time.monotonic() + wait))

    def act(self, stream: str, action: str) -> Future[Report]:
        """Do something to a stream that exists; gives how it is then."""
        if action not in ACTIONS:
            raise Refused(UNKNOWN, f"There is no action {quoted(action)}. Choose from: {', '.join(ACTIONS)}.")
        self._must_exist(stream)
        return self._put(Waiting(stream, action, time.monotonic() + self.settings.deadline))

    def listing(self, most: int = 1000) -> Report:
        """The streams, those that were used last before the others."""
        names = self.streams.names()
        found = [self._summary(name) for name in names[:most]]
        return {"streams": found, "total": len(names), "resident": len(self.streams.resident), **self._sizes()}

    def show(self, name: str) -> Report:
        """All that is known of a stream."""
        self._must_exist(name)
        stream = self.streams.resident.get(name)
        if stream is None:
            return self._summary(name)
        seen = [{**vars(one), "picture": thumbnail(one.picture)} for one in list(stream.seen)]
        told = [asdict(one) for one in list(stream.events)]
        return {**stream.summary(), "history": stream.history.points(), "events": told, "seen": seen}

    def events(self, name: str, after: int) -> list[dict[str, Any]]:
        """What happened to a stream after the event of this number."""
        self._must_exist(name)
        stream = self.streams.resident.get(name)
        return [] if stream is None else [asdict(told) for told in list(stream.events) if told.id > after]

    # Called by the worker.

    def _work(self) -> None:
        while batch := self.queue.take(self.streams.save_after_time):
            try:
                self._serve(batch)
            except Exception as error:  # of the model or of ours: those who wait are told, and the others go on
                if not isinstance(error, CttaError):
                    log.error("a batch of stream %s failed", batch[0].stream, exc_info=error)
                for waiting in batch:
                    if not waiting.result.done():
                        waiting.result.set_exception(error)
        for stream in [stream for stream in self.streams.resident.values() if stream.unsaved]:
            self.streams.save(stream)

    def _serve(self, batch: list[Waiting]) -> None:
        now, live = time.monotonic(), []
        for waiting in batch:
            if waiting.deadline < now:
                words = (
                    f"The request has waited for more than {now - waiting.since:.1f} s. Nothing was learned from it."
                )
                waiting.result.set_exception(Refused(LATE, words))
            elif waiting.result.set_running_or_notify_cancel():
                live.append(waiting)
        if not live:
            return
        if isinstance(live[0].work, str):
            live[0].result.set_result(self._act(live[0].stream, live[0].work))
        else:
            self._answer(live)
        if (stream := self.streams.resident.get(live[0].stream)) is not None:
            self.streams.save_after_updates(stream)
        self.streams.make_room()

    def _answer(self, batch: list[Waiting]) -> None:
        questions = [waiting.work for waiting in batch if isinstance(waiting.work, Question)]
        first, stream = questions[0], self.streams.get(batch[0].stream)
        if first.start and (stream.step or stream.frozen or stream.unsaved or stream.state is not None):
            self._act(stream.name, "reset")
        x = torch.from_numpy(np.concatenate([question.x for question in questions]))
        given = self.streams.seat.process(stream, x, adapt=first.adapt, source=first.source)
        self._note(stream, x, given)
        if questions[-1].end:
            self.streams.put_away(stream.name)
        begin = 0
        for waiting, question in zip(batch, questions, strict=True):
            rows = slice(begin, begin := begin + len(question.x))
            source = None if given.source is None else given.source[rows].float().numpy()
            probabilities = given.probabilities[rows].float().numpy()
            counts = (stream.step, stream.version, given.learned, stream.guard, len(x))
            waiting.result.set_result(Answer(stream.name, probabilities, source, *counts))

    def _note(self, stream: Stream, x: torch.Tensor, given: Processed) -> None:
        """Keep what the page and the metrics show."""
        if given.skipped != NOT_ASKED:
            stream.history.append(given.point)
        self.metrics.processed(given.point, given.skipped)
        self.queue.seconds += 0.1 * ((given.point["seconds"] or 0) - self.queue.seconds)
        if given.point["boundary"]:
            self._tell(stream, "drift", "the inputs have changed: another domain begins.")
        if given.reference is None or not self.served.pictures or not self.settings.pictures:
            return
        answer, source = given.probabilities[-1].max(0), given.reference[-1].max(0)
        picture = small((x[-1].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())
        known = (int(answer.indices), float(answer.values), int(source.indices), float(source.values))
        stream.seen.append(Seen(picture, *known))
        while len(stream.seen) > self.settings.pictures:
            stream.seen.popleft()

    def _act(self, name: str, action: str) -> Report:
        if action == "delete":
            self.streams.delete(name)
            return {"name": name, "deleted": True}
        stream, seat = self.streams.get(name), self.streams.seat
        if action == "reset":
            seat.reset(stream)
            stream.seen.clear()
            stream.history.clear()
        elif action == "rollback":
            seat.roll_back(stream)
        elif action == "resume":
            seat.resume(stream)
        elif action == "freeze":
            stream.frozen, stream.guard = True, "frozen"
        if action != "checkpoint":
            if action != "rollback":  # the seat counts it, whoever asks for it
                stream.changed(weights=action == "reset")
            self._tell(stream, action, "somebody asked for it.")
        if action == "checkpoint" and not self.streams.save(stream):
            words = f"Stream {name!r} could not be saved: {stream.events[-1].words}"
            raise Refused(CLOSING, words, retry_after=10)
        return stream.summary()

    def _guard_event(self, stream: Stream, event: Event) -> None:
        self._tell(stream, event.kind, event.words)
        if event.kind in ROLL_BACKS:
            guard = self.streams.seat.adapter
            healthy = isinstance(guard, Guard) and guard.snapshots
            self.metrics.rolled_back("frozen" if event.kind == "frozen" else "healthy" if healthy else "source")

    def _tell(self, stream: Stream, kind: str, words: str) -> None:
        stream.tell(kind, words)
        log.info("stream %s, step %d, %s: %s", stream.name, stream.step, kind, words)

    # Small things.

    def _put(self, waiting: Waiting) -> Future[Any]:
        self.queue.put(waiting)
        return waiting.result

    def _must_exist(self, name: str) -> None:
        if not self.streams.known(name):
            raise Refused(UNKNOWN, f"There is no stream {quoted(name)}. The first request that names it makes one.")

    def _summary(self, name: str) -> Report:
        stream = self.streams.resident.get(name)
        return {"name": name, "resident": False} if stream is None else stream.summary()

    def _sizes(self) -> dict[str, float]:
        streams = self.streams
        return {
            "ctta_streams": len(streams.resident),
            "ctta_stored_streams": len(streams.store.names),
            "ctta_state_bytes": streams.bytes,
            "ctta_queued_requests": len(self.queue),
        }
