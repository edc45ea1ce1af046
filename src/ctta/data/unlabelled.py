"""Samples without labels as a stream: a folder of images or of point clouds, or one array of them.

Samples come in the natural order of their names (image2 before image10). What cannot be read is left out of its batch,
and `unread` says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, InputError
from ctta.base.limits import BATCH
from ctta.data.pictures import PICTURES, Fit, files_below, picture_size, read_picture, to_grey
from ctta.data.stored import map_array, read_npz
from ctta.data.stream import AHEAD, Batch, Domain, Labels, Rows, Samples, Stream

CLOUD = ".npy"
ARRAYS = (".npz", ".npy")
SMALLEST = 2  # points of a point cloud

Sample = NDArray[Any]  # uint8 (H, W, 3), grey (H, W, 1), or float32 (P, 3)


@dataclass(frozen=True)
class UnlabelledSamples:
    """Samples without labels, each of which is read when its turn comes."""

    title: str
    names: tuple[str, ...]
    shape: tuple[int, ...]  # of one sample as the model gets it: (3, H, W), (1, H, W) or (P, 3)
    read_one: Callable[[int], Sample]
    note: str = ""  # a sentence on what was left out of a folder
    unread: dict[int, str] = field(default_factory=dict)  # why a sample could not be read, by its row

    def __len__(self) -> int:
        return len(self.names)

    def read(self, rows: Rows) -> Samples:
        """Return those of the samples that can be read."""
        form = (*self.shape[1:], self.shape[0]) if len(self.shape) == 3 else self.shape
        found: list[Sample] = []
        for row in rows.tolist():
            try:
                sample = self.read_one(row)
                if sample.shape != form:
                    shape = (sample.shape[2], *sample.shape[:2]) if sample.ndim == 3 else sample.shape
                    raise InputError(f"Its shape is {shape}, that of the others {self.shape}.")
                found.append(sample)
            except Exception as error:  # as many kinds as there are formats
                self.unread[row] = str(error) or type(error).__name__
        return np.stack(found) if found else np.empty((0, *form), np.float32)


@dataclass(frozen=True)
class UnlabelledStream(Stream):
    """A stream of one domain without labels. Batches of which nothing can be read are left out."""

    samples: UnlabelledSamples = field(kw_only=True)

    def rows(self, step: int) -> Rows:
        """Rows of a batch. All have nearly the same size: a last batch of one image has no statistics."""
        return np.array_split(np.arange(len(self.samples)), len(self))[step]

    def batches(self, start: int = 0) -> Iterator[Batch]:
        return (batch for batch in super().batches(start) if len(batch.x))

    def _load(self, place: tuple[int, int, int]) -> tuple[Samples, Labels]:
        found = self.samples.read(self.rows(place[2]))
        return found, np.full(len(found), -1)


def open_unlabelled(path: Path, batch: int, size: int | None = None, channels: int = 3) -> UnlabelledStream:
    """Open a folder or an array.

    Images are brought to `size`: shorter side resized, middle square cut out. With one of the `channels` they are grey.
    """
    samples = open_samples(path, size, channels)
    _check_bytes(samples, batch, resizes=path.is_dir() and len(samples.shape) == 3)
    domain = Domain("all", 0, np.full(len(samples), -1), samples.read)  # nobody knows where another domain begins
    return UnlabelledStream(
        (domain,), batch, notes=(samples.note,) if samples.note else (), ahead=AHEAD, samples=samples
    )


def _check_bytes(samples: UnlabelledSamples, batch: int, *, resizes: bool) -> None:
    """Refuse batches that may not fit into memory, before the first is read: the system would kill the process."""
    most = min(batch, len(samples))
    size = most * math.prod(samples.shape) * np.dtype(np.float32).itemsize
    if size > BATCH:
        fits = most * BATCH // size
        remedies = ["the size that the model takes, --size 224"] * resizes + [f"a smaller batch, --batch {fits}"] * (
            fits > 0
        )
        raise ConfigError(
            f"{samples.title}: a batch of {most} samples of shape {samples.shape} takes {size / 1e9:.1f} GB, and the "
            f"limit is {BATCH / 1e9:.1f} GB. Give {', or '.join(remedies or ['smaller samples'])}."
        )


def open_samples(path: Path, size: int | None = None, channels: int = 3) -> UnlabelledSamples:
    """See what there is and what shape it has; samples themselves are read later."""
    if path.is_file() and path.suffix in ARRAYS:
        return _from_array(path, size, channels)
    if not path.is_dir():
        raise InputError(f"{path} is no folder of samples and no array ({' '.join(ARRAYS)}). Give one of these.")
    names, note = files_below(path, (*PICTURES, CLOUD))
    found = sorted(names, key=natural)
    clouds = [name for name in found if Path(name).suffix.lower() == CLOUD]
    pictures = [name for name in found if Path(name).suffix.lower() != CLOUD]
    if pictures and clouds:
        raise InputError(
            f"{path} holds {len(pictures)} images and {len(clouds)} point clouds (.npy). Separate them into folders."
        )
    if not found:
        raise InputError(
            f"{path} holds no images ({' '.join(PICTURES)}) and no point clouds ({CLOUD}). {note}".rstrip()
        )
    title = path.resolve().name
    if clouds:
        shape = _common_shape(path, clouds, _cloud_shape, "Point clouds need one number of points: resample them.")
        return UnlabelledSamples(title, tuple(clouds), shape, lambda row: _cloud(map_array(path / clouds[row])), note)
    square = (size, size) if size else None
    size_of = partial(picture_size, upright=True)
    shape = square or _common_shape(path, pictures, size_of, "Give the size that the model takes: --size 224.")
    return UnlabelledSamples(
        title, tuple(pictures), (channels, *shape), lambda row: read_image(path / pictures[row], size, channels), note
    )


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts numbers by their value.

    >>> sorted(["a10.png", "a2.png", "B1.png"], key=natural)
    ['a2.png', 'a10.png', 'B1.png']
    """
    parts = re.split(r"(\d+)", name.casefold())
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def read_image(path: Path, size: int | None = None, channels: int = 3) -> Sample:
    """Read uint8 (H, W, C), upright; with a size, the shorter side is resized to it and the middle square cut out."""
    return _with_channels(Fit(size, size)(read_picture(path, upright=True)), channels)


def _cloud(points: NDArray[Any]) -> Sample:
    """Return float32 (P, 3) after checks."""
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < SMALLEST or points.dtype.kind != "f":
        raise InputError(f"A point cloud must be floating point (P, 3). Got {points.dtype} {points.shape}.")
    with np.errstate(over="ignore"):
        made = points.astype(np.float32)
    if not np.isfinite(made).all():
        raise InputError("The point cloud holds NaN or infinity.")
    return made


def _from_array(path: Path, size: int | None, channels: int) -> UnlabelledSamples:
    found = {"array": map_array(path)} if path.suffix == CLOUD else read_npz(path, optional=None)
    for array in found.values():
        names = tuple(f"{path.name}[{row}]" for row in range(len(array))) if array.size and array.ndim > 2 else ()
        if names and array.ndim == 3 and array.shape[2] == 3 and array.dtype.kind == "f":
            return UnlabelledSamples(path.stem, names, array.shape[1:], partial(_row_of, array, channels))
        if names and array.ndim == 4 and array.shape[3] in (3, channels) and array.dtype == np.uint8:
            if size and array.shape[1:3] != (size, size):
                raise InputError(f"{path} holds images of {array.shape[1:3]} pixels; the model takes {size}.")
            shape = (channels, *array.shape[1:3])
            return UnlabelledSamples(path.stem, names, shape, partial(_row_of, array, channels))
    shapes = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in found.items())
    raise InputError(
        f"{path} must hold point clouds, floating point (N, P, 3), or images, uint8 (N, H, W, 3), or (N, H, W, 1) with "
        f"--channels 1. Found: {shapes}."
    )


def _row_of(array: NDArray[Any], channels: int, row: int) -> Sample:
    sample = np.asarray(array[row])
    return _with_channels(sample, channels) if sample.dtype == np.uint8 else _cloud(sample)


def _with_channels(image: Sample, channels: int) -> Sample:
    return image if image.shape[2] == channels else to_grey(image)


def _common_shape(
    root: Path, names: Sequence[str], read: Callable[[Path], tuple[int, int]], remedy: str
) -> tuple[int, int]:
    """The shape that all share, read off the heads of the files; those without one are met again when they are read."""
    first: dict[tuple[int, int], str] = {}
    problem = ""
    for name in names:
        try:
            first.setdefault(read(root / name), name)
        except Exception as error:  # as many kinds as there are formats
            problem = problem or f"{name}: {error}"
    if not first:
        raise InputError(f"None of the {len(names)} files in {root} can be read. The first is {problem}")
    if len(first) > 1:
        (one, here), (other, there), *_ = first.items()
        raise InputError(f"The samples differ in size: {here} has {one}, {there} has {other}. {remedy}")
    return next(iter(first))


def _cloud_shape(path: Path) -> tuple[int, int]:
    points, coordinates = map_array(path).shape
    return points, coordinates
