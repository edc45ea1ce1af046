"""What goes into a home of streams and comes out of it: plain data that can go to another process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.text import quoted
from ctta.serving.refusals import BAD, Refused

DEFAULT = "default"  # the stream of requests that name none
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")
ACTIONS = ("freeze", "resume", "reset", "rollback", "checkpoint", "delete")

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Question:
    """Samples of one stream."""

    stream: str
    x: Floats  # (N, ...)
    adapt: bool = True
    start: bool = False  # the stream begins anew with them
    end: bool = False  # the stream is put away after them
    source: bool = False  # whether the unadapted model is asked, too
    timeout: float | None = None  # seconds


@dataclass(frozen=True)
class Answer:
    """Predictions, and what there is to know about the stream that made them."""

    stream: str
    probabilities: Floats  # (N, C)
    source: Floats | None  # (N, C), of the unadapted model
    step: int  # batches that the stream has seen
    version: int  # changes of its weights so far
    adapted: bool  # whether it learned from these samples
    guard: str
    batch: int  # samples that were processed together


@dataclass(frozen=True)
class Told:
    """Something that happened to a stream."""

    id: int
    time: float  # seconds since 1970
    step: int
    kind: str
    words: str


Report = dict[str, Any]


def stream_name(given: object) -> str:
    """The stream that a request names: a whole number or a text; 0, an empty text or none is the default stream."""
    if given is None or given == "" or (given == 0 and not isinstance(given, bool)):
        return DEFAULT
    name = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Refused(
            BAD,
            f"{quoted(given)} cannot be the name of a stream. Give a whole number, or up to 100 letters, digits and "
            "._:@-, of which the first is a letter or a digit.",
        )
    return name
