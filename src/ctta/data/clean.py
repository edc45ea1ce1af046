"""The reader of clean data, for `ctta corrupt` and for streams.

Clean images are an .npz with `images` and optionally `labels` and `classes`, the test set of CIFAR-10 or CIFAR-100 as
published (Python pickles), or a folder of pictures. Arrays are kept in memory; pictures are read when they are needed.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint, read_whole, reading
from ctta.base.pickles import read_pickle
from ctta.data.pictures import PICTURES, Fit, Images, Pictures, files_below, picture_size
from ctta.data.stored import read_npz

CIFAR_FILES = ("test_batch", "test")  # of CIFAR-10 and of CIFAR-100
NAMED = 3  # problems that a message lists


@dataclass(frozen=True)
class CleanImages:
    """N clean images."""

    images: Images | Pictures
    labels: NDArray[np.int64] | None  # (N,)
    sizes: NDArray[np.int64]  # (N, 2): height and width
    places: Sequence[str]  # one path per image, for a tree of JPEG files
    identity: str  # a hash: an export is resumed only with the images it was started with
    classes: tuple[str, ...] = ()  # their names, if the file has them
    note: str = ""  # a sentence on what was left out of a folder


def read_clean_images(path: Path) -> CleanImages:
    """Read an .npz, a CIFAR test set as published, or a folder of pictures."""
    if not path.exists():
        raise InputError(f"{path} does not exist: give an .npz, a CIFAR folder or a folder of pictures.")
    if path.suffix == ".npz":
        arrays = read_npz(path, ("images",), ("labels", "classes"))
        return _from_arrays(path, arrays["images"], arrays.get("labels"), class_names(path, arrays))
    for file in (path, *(path / name for name in CIFAR_FILES)):
        if file.is_file():
            return _from_arrays(file, *_read_cifar(file))
    return _from_folder(path)


def class_names(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """Return the names of the classes, if there are any."""
    names = arrays.get("classes", np.empty(0, np.str_))
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise InputError(f"{path} must hold a list of names as classes. Got {names.dtype} {names.shape} instead.")
    with reading(path, "names of classes in UTF-8"):
        return tuple(np.char.decode(names, "utf-8").tolist() if names.dtype.kind == "S" else map(str, names))


def _read_cifar(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    content = read_whole(path, "a CIFAR batch")
    with reading(path, "a CIFAR batch"):
        stored = read_pickle(io.BytesIO(content), ADMITTED)
        # The published files were written by Python 2; copies made since may have either kind of string.
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in stored.items()}
        images = _values(batch["data"]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = batch.get("fine_labels", batch.get("labels"))
        return images, None if labels is None else _values(labels)


def _from_arrays(
    path: Path, images: NDArray[Any], labels: NDArray[Any] | None, classes: tuple[str, ...] = ()
) -> CleanImages:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or not len(images):
        raise InputError(f"{path} must hold uint8 images (N, H, W, 3). Got {images.dtype} {images.shape} instead.")
    n = len(images)
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape != (n,)):
        raise InputError(f"{path} must hold {n} whole numbers as labels. Got {labels.dtype} {labels.shape} instead.")
    images = np.ascontiguousarray(images)
    digest = hashlib.sha256(repr(images.shape).encode())
    digest.update(images.data)
    places = [f"{i:0{len(str(n - 1))}}.JPEG" for i in range(n)]
    if labels is not None:
        labels = labels.astype(np.int64)
        digest.update(labels.tobytes())
        width = len(str(labels.max()))
        places = [f"{label:0{width}}/{place}" for label, place in zip(labels.tolist(), places, strict=True)]
    sizes = np.full((n, 2), images.shape[1:3], np.int64)
    return CleanImages(images, labels, sizes, places, digest.hexdigest()[:16], classes)


def _from_folder(path: Path) -> CleanImages:
    names, note = files_below(path)
    files = sorted(map(Path, names))
    if not files:
        raise InputError(
            f"{path} holds no images ({' '.join(PICTURES)}), no test_batch (CIFAR-10) and no test (CIFAR-100): give "
            f"another folder. {note}".rstrip()
        )
    problems, sizes = [], []
    for file in files:
        try:
            sizes.append(picture_size(path / file, upright=True))
        except InputError as error:
            problems.append(str(error))
    places = [file.with_suffix(".JPEG").as_posix() for file in files]
    if doubles := [place for place, count in Counter(places).items() if count > 1]:
        problems.append(f"{path} holds images that differ only in their suffix ({doubles[0]}): rename them.")
    if problems:
        more = [f"... and {len(problems) - NAMED} more."] if len(problems) > NAMED else []
        raise InputError("\n".join(problems[:NAMED] + more))
    labels = None
    if all(len(file.parts) > 1 for file in files):
        labels = np.unique([file.parts[0] for file in files], return_inverse=True)[1].astype(np.int64)
    pictures = Pictures(path, [str(file) for file in files], Fit(), upright=True)
    return CleanImages(pictures, labels, np.array(sizes), places, fingerprint(path, pictures.names), note=note)


class _Dtype:
    """Replaces numpy.dtype in a pickle."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.code = f"{state[1]}{self.code}"  # the byte order comes after the type


class _Array:
    """Replaces numpy.ndarray in a pickle. The real one would interpret bytes of a forged file as object addresses."""

    def __init__(self, *_: object) -> None:
        self.values: NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not re.fullmatch(r"[|<>=]?[iu][1248]", str(dtype.code)):
            raise InputError("It holds an array of other things than whole numbers.")
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        self.values = np.frombuffer(content, dtype.code).reshape(shape, order="F" if fortran is True else "C")


def _encoded(text: str, encoding: str) -> bytes:
    """Replaces _codecs.encode, which protocol 2 needs for bytes; other encodings than this one may unpack something."""
    if encoding != "latin1":
        raise InputError("It encodes something otherwise than as latin1.")
    return text.encode("latin1")


ADMITTED = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _encoded,
}


def _values(stored: object) -> NDArray[Any]:
    if isinstance(stored, list):
        if not all(type(number) is int for number in stored):
            raise InputError("It holds a list of other things than whole numbers.")
        return np.array(stored, np.int64)
    if not isinstance(stored, _Array):
        raise InputError(f"It holds {type(stored).__name__} instead of an array or a list.")
    return stored.values
