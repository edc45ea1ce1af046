"""Images of the gallery."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from ctta.records.run_folder import Samples
from ctta.report.page import pictures
from ctta.report.tables.errors import StreamPart

SEGMENTS = [StreamPart((number,), name, name[:3], name) for number, name in enumerate(("fog", "zoom_blur"))]


def samples(label: list[int], size: int = 8) -> Samples:
    count = len(label)
    return Samples(
        images=np.full((count, size, size, 3), 7, np.uint8),
        position=np.array([0] * (count - 1) + [1]),
        label=np.array(label),
        source=np.full(count, 1),
        adapted=np.full(count, 0),
        confidence=np.full(count, 0.5),
        selected=np.array([1] + [0] * (count - 2) + [-1]),
    )


def test_the_first_images_of_each_segment() -> None:
    (fog, first), (blur, second) = pictures.strips(samples([0, 1, 1, 1, 0]), SEGMENTS, ("cat", "dog"))
    assert (fog, len(first), blur, len(second)) == ("fog", pictures.EACH, "zoom blur", 1)
    assert (first[0].truth, first[0].before, first[0].after) == ("cat", ("dog", False), ("cat", True))
    assert [one.hint for one in (*first[:2], *second)] == [
        "confidence 50 %, selected",
        "confidence 50 %, not selected",
        "confidence 50 %",
    ]


def test_without_labels_nothing_is_right_or_wrong() -> None:
    (_, images), _ = pictures.strips(samples([-1, -1]), SEGMENTS, ())
    assert (images[0].truth, images[0].before) == ("", ("class 1", None))


def test_large_images_are_shrunk() -> None:
    uri = pictures.data_uri(np.zeros((300, 150, 3), np.uint8))
    image = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    assert image.size == (pictures.LARGEST // 2, pictures.LARGEST)
