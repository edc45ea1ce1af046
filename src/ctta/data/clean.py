"""The reader of clean data, for `ctta corrupt` and for streams.

Clean images are an .npz with `images` and optionally `labels` and `classes`, the test set of CIFAR-10 or CIFAR-100 as
published (Python pickles), or a folder of pictures. Arrays are kept in memory; pictures are read when they are needed.
"""

from __future__ import annotations

import codecs
import hashlib
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint, reading
from ctta.data.pictures import PICTURES, Fit, Images, Pictures, files_below, picture_size

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


def read_clean_images(path: Path) -> CleanImages:
    """Read an .npz, a CIFAR test set as published, or a folder of pictures."""
    if not path.exists():
        raise InputError(f"{path} does not exist: give an .npz, a CIFAR folder or a folder of pictures.")
    if path.suffix == ".npz":
        arrays = read_npz(path, ("images",), ("labels", "classes"))
        return _from_arrays(path, arrays["images"], arrays.get("labels"), class_names(arrays))
    for file in (path, *(path / name for name in CIFAR_FILES)):
        if file.is_file():
            return _from_arrays(file, *_read_cifar(file))
    return _from_folder(path)


def read_npz(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read arrays from an .npz file; pickled objects are refused."""
    expected = f"an .npz with {' and '.join(map(repr, needed))}"
    if not path.is_file():
        raise InputError(f"There is no file {path}. Give {expected}.")
    with reading(path, expected), path.open("rb") as file, np.load(file) as stored:
        found = list(stored.files)
        arrays = {name: stored[name] for name in (*needed, *optional) if name in found}
    if missing := [name for name in needed if name not in arrays]:
        example = ", ".join(f"{name}=..." for name in (*needed, *optional) if name != "classes")
        raise InputError(
            f"{path} has no {' and no '.join(map(repr, missing))}. Found: {', '.join(found) or 'nothing'}. Save it "
            f"with np.savez(path, {example})."
        )
    return arrays


def class_names(arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """Return the names of the classes, if there are any."""
    return tuple(map(str, arrays.get("classes", ())))


def _read_cifar(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    with reading(path, "a CIFAR batch"), path.open("rb") as file:
        stored = _Unpickler(file, encoding="latin1").load()
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
    files = sorted(map(Path, files_below(path)))
    if not files:
        raise InputError(
            f"{path} holds no images ({' '.join(PICTURES)}), no test_batch (CIFAR-10) and no test (CIFAR-100): give "
            "another folder."
        )
    problems, sizes = [], []
    for file in files:
        try:
            sizes.append(picture_size(path / file))
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
    pictures = Pictures(path, [str(file) for file in files], Fit())
    return CleanImages(pictures, labels, np.array(sizes), places, fingerprint(path, pictures.names))


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
        kind = np.dtype(str(dtype.code))
        if kind.kind not in "iu":
            raise InputError(f"An array of whole numbers was expected. Got {kind} instead.")
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        self.values = np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")


class _Unpickler(pickle.Unpickler):
    """Reads dicts, lists, strings, numbers and arrays of whole numbers. Nothing in the file can run."""

    admitted: Mapping[tuple[str, str], Any] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): codecs.encode,
    }

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in self.admitted:
            raise InputError(
                f"It asks for {module}.{name}, which is no part of a CIFAR batch and could run code, so it was not "
                "loaded: take the file from the official page."
            )
        return self.admitted[module, name]


def _values(stored: object) -> NDArray[Any]:
    return stored.values if isinstance(stored, _Array) else np.asarray(stored)
