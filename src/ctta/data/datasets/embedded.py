"""The embedded default: the Fashion-MNIST test set as 32x32 RGB, corrupted on the fly. It needs no download."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data, DataSet
from ctta.data.pictures import Images
from ctta.data.stream import Labels, Stream


@cache
def fashion_mnist() -> tuple[Images, Labels, tuple[str, ...]]:
    """Return images uint8 (10000, 32, 32, 3), labels and class names; images are grey, padded with black from 28 px."""
    with files("ctta.assets").joinpath("fashion_mnist_test.npz").open("rb") as file, np.load(file) as stored:
        grey, labels, classes = stored["images"], stored["labels"], tuple(str(name) for name in stored["classes"])
    padded = np.pad(grey, ((0, 0), (2, 2), (2, 2)))
    return np.repeat(padded[..., None], 3, axis=3), labels.astype(np.int64), classes


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    images, labels, classes = fashion_mnist()
    return corrupted_stream(images, labels, domains, data, classes)


EMBEDDED = DataSet(
    "Fashion-MNIST (embedded)", "The Fashion-MNIST test set that comes with ctta.", _open, needs_path=False
)
