"""Labelled images of one's own in one .npz file, clean or corrupted on the fly.

images    uint8 (N, H, W, 3)
labels    (N,)
classes   names of the classes, if there are any
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ctta.errors import InputError
from ctta.streams.corrupted import corrupted_stream
from ctta.streams.dataset import Data, DataSet
from ctta.streams.stream import Images, Labels, Stream


def read_arrays(path: Path) -> tuple[Images, Labels, tuple[str, ...]]:
    """Images, labels and names of the classes."""
    try:
        with np.load(path) as stored:
            classes = tuple(str(name) for name in stored["classes"]) if "classes" in stored.files else ()
            return stored["images"], stored["labels"].astype(np.int64), classes
    except FileNotFoundError as error:
        raise InputError(
            f"There is no file {path}. Give an .npz with 'images', uint8 (N, H, W, 3), and 'labels'."
        ) from error
    except (KeyError, ValueError, OSError) as error:
        raise InputError(f"{path} cannot be used ({error}). It must be an .npz with 'images' and 'labels'.") from error


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    images, labels, classes = read_arrays(data.folder)
    return corrupted_stream(images, labels, domains, data, classes)


ARRAYS = DataSet("own arrays", "an .npz with 'images', uint8 (N, H, W, 3), and 'labels'.", _open)
