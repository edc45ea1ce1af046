"""Labelled clouds of one's own in one .npz file, clean or corrupted on the fly.

points    floating point (N, P, 3), y up, within [-1, 1] or nearly so
labels    (N,), whole numbers from 0
classes   names of the classes, if there are any
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corrupted_clouds import CLOUD_DOMAINS, cloud_stream
from ctta.data.dataset import Data, DataSet
from ctta.data.stream import Stream

ABOUT = "an .npz with 'points', floating point (N, P, 3), y up, and 'labels'."


def read_cloud_arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Points, labels and names of the classes, as stored."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            if missing := [name for name in ("points", "labels") if name not in stored.files]:
                raise InputError(
                    f"{path} has no {' and no '.join(map(repr, missing))}. It must be {ABOUT} Found: "
                    f"{', '.join(stored.files)}."
                )
            classes = tuple(str(name) for name in stored["classes"]) if "classes" in stored.files else ()
            return stored["points"], stored["labels"], classes
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}. Give {ABOUT}") from error
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read ({error}). It must be {ABOUT}") from error


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    points, labels, classes = read_cloud_arrays(data.folder)
    return cloud_stream(points, labels, domains, data, classes)


CLOUD_ARRAYS = DataSet("own clouds", ABOUT, _open, domains=CLOUD_DOMAINS, samples="clouds")
