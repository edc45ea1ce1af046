"""One adapter in which streams take turns: what a stream has learned is copied in, and out again.

So the memory of a stream is that of what it has changed, kilobytes for methods that learn norm parameters, and the
source model is there once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ctta.core.device import synchronize
from ctta.core.guard import Adapting, Guard
from ctta.core.guard_state import Event
from ctta.core.losses import entropy
from ctta.core.processing import Step
from ctta.serving.stream import Point, State, Stream

GUARD_WORDS = ("ok", "watched", "rolled back", "frozen")  # their places are the values of the metric
UNGUARDED = "unguarded"
NOT_ASKED = "not asked for"  # why nothing was learned
ROLL_BACKS = ("roll-back", "frozen")  # events of a guard that takes back what was learned


@dataclass(frozen=True)
class Processed:
    """What a batch gave, on the host."""

    probabilities: Tensor  # (N, C)
    source: Tensor | None  # (N, C), of the unadapted model, if it was asked for
    reference: Tensor | None  # (N, C), of the source's weights, if the guard has looked
    point: Point
    learned: bool
    skipped: str = ""  # why nothing was learned


class Seat:
    """The adapter, and the stream that sits in it."""

    def __init__(self, adapter: Adapting, tell: Callable[[Stream, Event], None]) -> None:
        self.adapter, self._tell, self._rolled_back = adapter, tell, False
        self.fresh: State = adapter.stream_state()
        self.sitting: Stream | None = None
        if isinstance(adapter, Guard):
            adapter.on_event = self._on_event

    def sit(self, stream: Stream) -> None:
        """Let the adapter be that of this stream."""
        if self.sitting is not stream:
            self.leave()
            self.adapter.set_stream_state(self.fresh if stream.state is None else stream.state)
            self.sitting = stream

    def leave(self) -> None:
        """Let the stream that sits here have its state."""
        self.keep()
        self.sitting = None

    def keep(self) -> None:
        """Copy what the stream that sits here has learned."""
        if self.sitting is not None and (self.sitting.step or self.sitting.unsaved):
            self.sitting.remember(self.adapter.stream_state())

    def drop(self, stream: Stream) -> None:
        """Forget a stream without copying anything."""
        if self.sitting is stream:
            self.sitting = None

    def process(self, stream: Stream, x: Tensor, *, adapt: bool, source: bool) -> Processed:
        """Answer a batch, and learn from it if that is wanted."""
        self.sit(stream)
        adapter, began = self.adapter, time.perf_counter()
        device, dtype = adapter.placement
        x = x.to(device, dtype)
        adapts = adapt and not stream.frozen
        before, self._rolled_back = adapter.batches, False
        step = adapter.step(x) if adapts else Step(adapter.predict(x))
        asked = adapter.source(x).softmax(1).cpu() if source else None
        synchronize(device)
        seconds = time.perf_counter() - began
        probabilities = step.logits.softmax(1)
        info = _read(step, probabilities)
        stream.step, stream.guard = adapter.batches, self.guard_word(stream)
        skipped = _reason(info) or ("" if adapter.batches > before else "frozen" if adapt else NOT_ASKED)
        if adapts and not self._rolled_back:  # a batch that taught nothing has moved counters and averages
            stream.changed(weights=not skipped)
        point: Point = {
            "step": stream.step,
            "samples": len(x),
            "confidence": info["confidence"],
            "source_confidence": info.get("reference_confidence"),
            "threshold": info.get("threshold"),
            "selected": info.get("selected"),
            "disagreement": info.get("disagreement"),
            "entropy": info["entropy"],
            "boundary": info.get("boundary", 0.0),
            "guard": self.guard_value(stream),
            "seconds": round(seconds, 6),
        }
        reference = None if step.reference is None else step.reference.softmax(1).cpu()
        return Processed(probabilities.cpu(), asked, reference, point, not skipped, skipped)

    def reset(self, stream: Stream) -> None:
        """Let the stream begin anew."""
        self.drop(stream)
        stream.state, stream.step, stream.frozen, stream.size = None, 0, False, 0
        stream.guard = "ok" if isinstance(self.adapter, Guard) else UNGUARDED

    def roll_back(self, stream: Stream) -> None:
        """Take back what the stream has learned since its last healthy state; without a guard, all of it."""
        self.sit(stream)
        if isinstance(self.adapter, Guard):
            self.adapter.roll_back()
        else:
            self.adapter.restore_source()
            stream.changed(weights=True)
        stream.guard = self.guard_word(stream)

    def resume(self, stream: Stream) -> None:
        """Let the stream learn again, whoever froze it."""
        self.sit(stream)
        stream.frozen = False
        if isinstance(self.adapter, Guard) and self.adapter.state.frozen:
            self.adapter.resume()
        stream.guard = self.guard_word(stream)

    def guard_word(self, stream: Stream) -> str:
        """How the stream that sits here is."""
        guard = self.adapter
        if stream.frozen or (isinstance(guard, Guard) and guard.verdict == "frozen"):
            return "frozen"
        if not isinstance(guard, Guard):
            return UNGUARDED
        if guard.state.alarm >= 0 and guard.state.trial > 0:
            return "rolled back"
        return "watched" if guard.verdict == "watched" else "ok"

    def guard_value(self, stream: Stream) -> float | None:
        return float(GUARD_WORDS.index(stream.guard)) if stream.guard in GUARD_WORDS else None

    def _on_event(self, event: Event) -> None:
        if self.sitting is None:
            return
        if event.kind in ROLL_BACKS:
            self._rolled_back = True
            self.sitting.changed(weights=True)
        self._tell(self.sitting, event)


def _reason(info: dict[str, float]) -> str:
    """Why a step has learned nothing; empty if it has."""
    return "not finite" if info.get("skipped") else "nothing to learn" if info.get("idle") else ""


def _read(step: Step, probabilities: Tensor) -> dict[str, float]:
    """All numbers of a step, in one read: a device that is asked often waits each time."""
    found = {**step.info, "confidence": probabilities.amax(1).mean(), "entropy": entropy(step.logits).mean()}
    if "selected" in step.samples:
        found["selected"] = step.samples["selected"].to(probabilities.dtype).mean()
    numbers = torch.stack([value.detach().to(probabilities.device, torch.float32) for value in found.values()])
    return dict(zip(found, numbers.tolist(), strict=True))
