"""A few images of every domain, with the predictions before and after adaptation, as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ctta.records.run_folder import Samples
from ctta.report.tables.errors import StreamPart

LARGEST = 96  # pixels; larger images are shrunk, to keep the page small
EACH = 3  # images per domain
DOMAINS = 15  # of a long stream, the first ones


@dataclass(frozen=True)
class Picture:
    """One image with its label and predictions."""

    uri: str
    truth: str  # empty without a label
    before: tuple[str, bool | None]  # the predicted class, and whether it is right; none without a label
    after: tuple[str, bool | None]
    hint: str
    name: str = ""  # of its file, if that is known


def strips(samples: Samples, segments: Sequence[StreamPart], classes: Sequence[str]) -> list[tuple[str, list[Picture]]]:
    """The first images of each segment, with the segment's name; they are not chosen."""
    found = []
    for segment in segments[:DOMAINS]:
        (indices,) = np.nonzero(np.isin(samples.position, segment.positions))
        if len(indices):
            pictures = [_picture(samples, int(index), classes) for index in indices[:EACH]]
            found.append((segment.words, pictures))
    return found


def changed(samples: Samples, classes: Sequence[str]) -> list[Picture]:
    """Those whose prediction is not the unadapted model's."""
    (indices,) = np.nonzero(samples.source != samples.adapted)
    return [_picture(samples, int(index), classes) for index in indices]


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """A PNG, inline."""
    image = Image.fromarray(pixels)
    image.thumbnail((LARGEST, LARGEST))
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def _picture(samples: Samples, index: int, classes: Sequence[str]) -> Picture:
    truth = int(samples.label[index])

    def name(class_: int) -> str:
        return classes[class_] if 0 <= class_ < len(classes) else f"class {class_}"

    def prediction(class_: int) -> tuple[str, bool | None]:
        return name(class_), class_ == truth if truth >= 0 else None

    selected = {1: ", selected", 0: ", not selected"}.get(int(samples.selected[index]), "")
    return Picture(
        uri=data_uri(samples.images[index]),
        truth=name(truth) if truth >= 0 else "",
        before=prediction(int(samples.source[index])),
        after=prediction(int(samples.adapted[index])),
        hint=f"confidence {100 * float(samples.confidence[index]):.0f} %{selected}",
        name=str(samples.name[index]) if len(samples.name) else "",
    )
