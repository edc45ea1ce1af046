"""Whole image sets, corrupted, in the file formats of the public benchmarks.

    CIFAR-C      OUT/<corruption>.npy, uint8 (5 N, H, W, 3): severities 1..5 stacked, N images each; rows that were
                 not asked for are zero. OUT/labels.npy (5 N,)
    ImageNet-C   OUT/<corruption>/<severity>/<sub-folder>/<name>.JPEG, quality 85

The clean images are an .npz with `images` and perhaps `labels`, a CIFAR-10 or CIFAR-100 test set as published (Python
pickles), or a folder of pictures. Arrays are held in memory; pictures are read when they are needed.

`plan_corruption` checks everything first and reports all that is wrong together. `Plan.run` may be stopped at any time
and goes on where it was: `OUT/.progress/<corruption>.json` holds the settings and, for CIFAR-C, the rows that are
complete. A file takes its name when all that was asked of it is in it: `.npy.partial` until then.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
import pickle
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, InputError, nearest
from ctta.base.fileio import fingerprint, reading, write_atomically
from ctta.base.image_size import is_large
from ctta.data.corruptions.constants import EXTRA, NAMES, PAPER, PRESETS
from ctta.data.corruptions.domain import SEVERITIES, THREADS
from ctta.data.corruptions.images import SMALLEST, corrupt
from ctta.data.pictures import (
    CROP,
    PICTURES,
    RESIZE,
    Picture,
    centre_crop,
    files_below,
    picture_size,
    read_picture,
    resize_shorter,
    to_jpeg,
)

FORMATS = ("auto", "cifar-c", "imagenet-c")
GROUPS: Mapping[str, tuple[str, ...]] = {"all": NAMES, "paper": PAPER, "extra": EXTRA}
NAMED = 3  # how many offenders a message names


def parse_corruptions(text: str) -> tuple[str, ...]:
    """Names from "all", "paper", "extra" or "fog,snow". `plan_corruption` says which of them do not exist."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(dict.fromkeys(name for word in words for name in GROUPS.get(word, (word,))))


def parse_severities(text: str) -> tuple[int, ...]:
    """Numbers from "5", "1-5" or "1,3,5". `plan_corruption` says which of them are out of range."""
    severities: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d)\s*(?:-\s*(\d)\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ConfigError(f"Severities must be written like 5, 1-5 or 1,3,5. Got {text!r} instead.")
        severities.update(range(first, last + 1))
    return tuple(sorted(severities))


@dataclass(frozen=True)
class Source:
    """N clean images."""

    identity: str  # a hash: a run goes on only with the images it was begun with
    sizes: NDArray[np.int64]  # (N, 2): height and width
    places: Sequence[str]  # where ImageNet-C puts each image below <corruption>/<severity>
    labels: NDArray[np.int64] | None  # (N,)
    read: Callable[[int], Picture]
    images: NDArray[np.uint8] | None = None  # (N, H, W, 3); none for a folder of pictures
    classes: tuple[str, ...] = ()  # their names, where the file has them

    @property
    def pictures(self) -> bool:
        return self.images is None


@dataclass(frozen=True)
class Progress:
    """How far a run is, in images times corruptions times severities."""

    done: int
    total: int
    corruption: str
    severity: int


@dataclass(frozen=True)
class Plan:
    """What will be written where. Made by `plan_corruption`."""

    path: Path
    source: Source
    out: Path
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    preset: str
    seed: int
    format: str
    frost: Path | None

    @property
    def images(self) -> int:
        return len(self.source.places)

    @property
    def total(self) -> int:
        return self.images * len(self.corruptions) * len(self.severities)

    def describe(self) -> str:
        """One sentence."""
        what = f"{len(self.corruptions)} corruption{'s' * (len(self.corruptions) > 1)}"
        severities = f"severit{'y' if len(self.severities) == 1 else 'ies'} {', '.join(map(str, self.severities))}"
        crops = self._crops and (self.source.sizes != CROP).any()
        crop = f", resized to {RESIZE} and cropped to {CROP} pixels" if crops else ""
        if self.format == "cifar-c":
            where = f"{self.out / '<corruption>.npy'}, with{'out' * (self.source.labels is None)} labels.npy"
        else:
            where = str(self.out / "<corruption>" / "<severity>")
        return (
            f"{what} at {severities} of the {self.images} images in {self.path}{crop}, with the {self.preset} "
            f"constants and seed {self.seed}, to {where} ({self.total} images)."
        )

    def run(self, chunk: int = 256) -> Iterator[Progress]:
        """Write what is not there yet. Progress comes after each chunk, and once for what an earlier run left."""
        if chunk < 1:
            raise ConfigError(f"`chunk` must be at least 1. Got {chunk!r} instead.")
        write = self._write_stack if self.format == "cifar-c" else self._write_tree
        labels = self._stacked_labels()
        if labels is not None and not (self.out / "labels.npy").exists():
            content = io.BytesIO()
            np.save(content, labels)
            write_atomically(self.out / "labels.npy", content.getvalue())
        done = 0
        for corruption in self.corruptions:
            for severity, images in write(corruption, chunk):
                done += images
                yield Progress(done, self.total, corruption, severity)

    def _write_stack(self, corruption: str, chunk: int) -> Iterator[tuple[int, int]]:
        """CIFAR-C: one array a corruption, a row an image. Yields a severity and how many images of it were added."""
        n = self.images
        final, part = self._targets(corruption)
        complete = self._complete(corruption) if final.exists() or part.exists() else {}
        todo = [
            (severity, start, min(start + chunk, n))
            for severity in self.severities
            for start in range(complete.get(severity, 0), n, chunk)
        ]
        if todo and final.exists():  # an earlier run was asked for fewer severities
            final.replace(part)
        elif todo and not complete:
            self._record(corruption, {})
            open_memmap(part, mode="w+", dtype=np.uint8, shape=self._stack_shape)
        elif not todo and part.exists():
            part.replace(final)
        for severity in self.severities:
            if severity in complete:
                yield severity, complete[severity]
        for severity, start, stop in todo:
            images = np.stack([self._picture(i) for i in range(start, stop)])
            stack = open_memmap(part, mode="r+")
            stack[(severity - 1) * n + start : (severity - 1) * n + stop] = self._corrupt(
                images, corruption, severity, start
            )
            stack.flush()
            del stack  # some systems do not rename a file that is mapped
            complete[severity] = stop
            self._record(corruption, complete)
            if (severity, stop) == (todo[-1][0], n):
                part.replace(final)
            yield severity, stop - start

    def _write_tree(self, corruption: str, chunk: int) -> Iterator[tuple[int, int]]:
        """ImageNet-C: one file an image. Yields a severity and how many images of it were added."""
        self._record(corruption, {})
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            for severity in self.severities:
                for start in range(0, self.images, chunk):
                    part = range(start, min(start + chunk, self.images))
                    list(pool.map(partial(self._write_picture, corruption, severity), part))
                    yield severity, len(part)

    def _write_picture(self, corruption: str, severity: int, index: int) -> None:
        path = self.out / corruption / str(severity) / self.source.places[index]
        if path.exists():
            return
        image = self._corrupt(self._picture(index)[None], corruption, severity, index)[0]
        write_atomically(path, to_jpeg(image), durable=False)  # a flush an image would take longer than the image

    def _picture(self, index: int) -> Picture:
        image = self.source.read(index)
        return _resize_and_crop(image) if self._crops else image

    def _corrupt(self, images: NDArray[np.uint8], corruption: str, severity: int, first: int) -> NDArray[np.uint8]:
        return corrupt(images, corruption, severity, self.preset, self.seed, first, self.frost)

    @property
    def _crops(self) -> bool:
        return self.source.pictures and self.preset == "imagenet"

    @property
    def _sizes(self) -> NDArray[np.int64]:
        return np.full_like(self.source.sizes, CROP) if self._crops else self.source.sizes

    @property
    def _stack_shape(self) -> tuple[int, int, int, int]:
        height, width = self._sizes[0].tolist()
        return len(SEVERITIES) * self.images, height, width, 3

    def _stacked_labels(self) -> NDArray[np.integer[Any]] | None:
        """The labels once a severity, uint8 as in the public files where they fit."""
        labels = self.source.labels
        if self.format != "cifar-c" or labels is None:
            return None
        fits = labels.min() >= 0 and labels.max() < 256
        return np.tile(labels, len(SEVERITIES)).astype(np.uint8 if fits else np.int64)

    def _targets(self, corruption: str) -> tuple[Path, ...]:
        """Where a corruption goes; for CIFAR-C also where it is made."""
        if self.format == "cifar-c":
            return self.out / f"{corruption}.npy", self.out / f"{corruption}.npy.partial"
        return (self.out / corruption,)

    # The record of a corruption: its settings, and how many images of each severity are complete.

    def _record_path(self, corruption: str) -> Path:
        return self.out / ".progress" / f"{corruption}.json"

    def _record(self, corruption: str, complete: Mapping[int, int]) -> None:
        record = {"settings": self._settings(corruption), "complete": complete}
        write_atomically(self._record_path(corruption), json.dumps(record).encode())

    def _complete(self, corruption: str) -> dict[int, int]:
        record = _read_record(self._record_path(corruption))
        return {int(severity): count for severity, count in record["complete"].items()}

    def _settings(self, corruption: str) -> dict[str, str | int]:
        """All that decides what the files of a corruption hold."""
        settings: dict[str, str | int] = {
            "input": self.source.identity,
            "preset": self.preset,
            "seed": self.seed,
            "format": self.format,
        }
        if corruption == "frost" and corruption in self.corruptions:
            settings["frost"] = fingerprint(self.frost, sorted(os.listdir(self.frost))) if self.frost else "drawn"
        return settings

    def _size_problems(self) -> Iterator[str]:
        sizes = self._sizes
        small = np.flatnonzero(sizes.min(axis=1) < SMALLEST)
        if len(small):
            yield (
                f"Images must be at least {SMALLEST} pixels high and wide. {self.path} holds {len(small)} smaller ones "
                f"({self._some(small)}): enlarge them or take them out."
            )
        (usual, _), *_ = Counter(map(tuple, sizes.tolist())).most_common(1)
        other = np.flatnonzero((sizes != usual).any(axis=1))
        if self.format == "cifar-c" and len(other):
            yield (
                f"A CIFAR-C file holds images of one size. {self.path} has {usual[0]} x {usual[1]} and {len(other)} "
                f"images of other sizes ({self._some(other)}): resize them, or choose the format imagenet-c."
            )

    def _some(self, indices: NDArray[np.intp]) -> str:
        names = [f"{self.source.places[i]}: {self._sizes[i][0]} x {self._sizes[i][1]}" for i in indices[:NAMED]]
        return ", ".join(names + ["..."] * (len(indices) > NAMED))

    def _conflicts(self) -> Iterator[str]:
        """Nothing is overwritten that was not made here, and one folder holds one set of settings."""
        for path in sorted((self.out / ".progress").glob("*.json")):
            try:
                written = _read_record(path)["settings"]
            except InputError as error:
                yield str(error)
                continue
            now = self._settings(path.stem)
            changed = [
                f"{key} {written.get(key)}, now {value}" for key, value in now.items() if written.get(key) != value
            ]
            if changed:
                yield (
                    f"{self.out} was begun with other settings for {path.stem} ({'; '.join(changed)}): repeat the "
                    "earlier ones, or choose another folder."
                )
        for corruption in self.corruptions:
            if not self._record_path(corruption).exists():
                for target in filter(Path.exists, self._targets(corruption)):
                    yield f"{target} exists and was not made here: move it away, or choose another folder."
        labels, path = self._stacked_labels(), self.out / "labels.npy"
        if labels is not None and path.exists() and not _holds(path, labels):
            yield f"{path} holds other labels than {self.path}: move it away, or choose another folder."

    def _space_problems(self) -> Iterator[str]:
        """A mapped file that does not fit on the disk ends the process, so this is asked first."""
        if self.format != "cifar-c":
            return
        new = sum(not any(map(Path.exists, self._targets(corruption))) for corruption in self.corruptions)
        needed, free = new * int(np.prod(self._stack_shape)), shutil.disk_usage(_existing(self.out)).free
        if needed > free:
            yield (
                f"{self.out} needs {needed / 1e9:.1f} GB and has {free / 1e9:.1f} GB free: make room, or ask for fewer "
                "corruptions at a time."
            )


def plan_corruption(
    source: Path,
    out: Path,
    corruptions: Sequence[str],
    severities: Sequence[int],
    preset: str | None = None,
    seed: int = 0,
    format: str = "auto",  # noqa: A002
    frost: Path | None = None,
) -> Plan:
    """Check all that can be checked before the first image is written, and report all that is wrong together.

    Without a preset, images of 64 pixels and more take the constants of ImageNet. With those, pictures from a folder
    are resized to 256 and cropped to 224 pixels, unless they are 224 x 224. `auto` writes ImageNet-C from a folder of
    pictures and CIFAR-C from arrays. `frost` is a folder with the public frost photographs.
    """
    settings = _setting_problems(corruptions, severities, preset, seed, format)
    files = [*_out_problems(source, out), *(_frost_problems(frost) if frost and "frost" in corruptions else ())]
    try:
        images = read_source(source)
    except InputError as error:
        raise _together(settings, [*files, str(error)]) from error
    plan = Plan(
        path=source,
        source=images,
        out=out,
        corruptions=tuple(dict.fromkeys(corruptions)),
        severities=tuple(sorted(set(severities))),
        preset=preset or ("imagenet" if is_large(*np.median(images.sizes, axis=0).astype(int)) else "cifar"),
        seed=seed,
        format=("imagenet-c" if images.pictures else "cifar-c") if format == "auto" else format,
        frost=frost,
    )
    if not files:  # else the output folder or the photographs cannot be looked at
        settings += plan._conflicts()
        files += plan._space_problems()
    files += plan._size_problems()
    if settings or files:
        raise _together(settings, files)
    return plan


def _setting_problems(
    corruptions: Sequence[str], severities: Sequence[int], preset: str | None, seed: int, style: str
) -> list[str]:
    problems = [
        f"No corruption is called {name!r}. {nearest(name, NAMES)}" for name in corruptions if name not in NAMES
    ]
    problems += [
        f"The severity must be one of 1, 2, 3, 4, 5. Got {severity!r} instead."
        for severity in severities
        if severity not in SEVERITIES
    ]
    if not corruptions:
        problems.append("No corruption was named: give at least one, or all.")
    if not severities:
        problems.append("No severity was given: give at least one of 1, 2, 3, 4, 5.")
    if preset is not None and preset not in PRESETS:
        problems.append(f"No preset of constants is called {preset!r}. {nearest(preset, PRESETS)}")
    if seed < 0:
        problems.append(f"`seed` must be a whole number of at least 0. Got {seed!r} instead.")
    if style not in FORMATS:
        problems.append(f"No format is called {style!r}. {nearest(style, FORMATS)}")
    return problems


def _out_problems(source: Path, out: Path) -> Iterator[str]:
    home = _existing(out)
    if not home.is_dir():
        yield f"{home} is a file, so nothing can be written to {out}: choose another folder."
    elif not os.access(home, os.W_OK | os.X_OK):
        yield f"{home} cannot be written to: change its permissions, or choose another folder."
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        yield f"{out} lies in {source}, where its images would be taken for clean ones: choose another folder."


def _frost_problems(frost: Path) -> Iterator[str]:
    try:
        with reading(frost, "a folder of frost photographs"):
            corrupt(np.zeros((1, SMALLEST, SMALLEST, 3), np.uint8), "frost", frost=frost)
    except InputError as error:
        yield str(error)


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _together(settings: Sequence[str], files: Sequence[str]) -> ConfigError | InputError:
    return (ConfigError if settings else InputError)("\n".join([*settings, *files]))


def read_source(path: Path) -> Source:
    """The clean images: an .npz, a CIFAR test set as published, or a folder of pictures."""
    if not path.exists():
        raise InputError(f"{path} does not exist: give an .npz, a CIFAR folder or a folder of pictures.")
    if path.suffix == ".npz":
        return _read_npz(path)
    for file in (path, path / "test_batch", path / "test"):  # the names of CIFAR-10 and CIFAR-100
        if file.is_file():
            return _read_cifar(file)
    return _read_folder(path)


def _read_npz(path: Path) -> Source:
    with reading(path, "an .npz"), path.open("rb") as file, np.load(file) as stored:  # refuses pickled objects
        arrays = {name: stored[name] for name in ("images", "labels", "classes") if name in stored.files}
    if "images" not in arrays:
        raise InputError(f"{path} has no array `images`: save it with np.savez(path, images=..., labels=...).")
    return _of_arrays(path, arrays["images"], arrays.get("labels"), tuple(map(str, arrays.get("classes", ()))))


def _read_cifar(path: Path) -> Source:
    with reading(path, "a CIFAR batch"), path.open("rb") as file:
        stored = _Unpickler(file, encoding="latin1").load()
        # The published files were written by Python 2; copies made since may have either kind of string.
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in stored.items()}
        images = _values(batch["data"]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = batch.get("fine_labels", batch.get("labels"))
    return _of_arrays(path, images, None if labels is None else _values(labels))


def _of_arrays(path: Path, images: NDArray[Any], labels: NDArray[Any] | None, classes: tuple[str, ...] = ()) -> Source:
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
    return Source(digest.hexdigest()[:16], sizes, places, labels, images.__getitem__, images, classes)


def _read_folder(path: Path) -> Source:
    names = sorted(map(Path, files_below(path)))
    if not names:
        raise InputError(
            f"{path} holds no images ({' '.join(PICTURES)}), no test_batch (CIFAR-10) and no test (CIFAR-100): give "
            "another folder."
        )
    problems, sizes = [], []
    for name in names:
        try:
            sizes.append(picture_size(path / name))
        except InputError as error:
            problems.append(str(error))
    places = [name.with_suffix(".JPEG").as_posix() for name in names]
    if doubles := [place for place, count in Counter(places).items() if count > 1]:
        problems.append(f"{path} holds images that differ in the ending alone ({doubles[0]}): rename them.")
    if problems:
        raise InputError(
            "\n".join(problems[:NAMED] + [f"... and {len(problems) - NAMED} more."] * (len(problems) > NAMED))
        )
    labels = None
    if all(len(name.parts) > 1 for name in names):
        labels = np.unique([name.parts[0] for name in names], return_inverse=True)[1].astype(np.int64)
    identity = fingerprint(path, map(str, names))
    return Source(identity, np.array(sizes), places, labels, lambda i: read_picture(path / names[i]))


def _resize_and_crop(image: Picture) -> Picture:
    """Shorter side to 256, the middle 224 x 224 of it; an image of that size stays as it is."""
    if image.shape[:2] == (CROP, CROP):
        return image
    return centre_crop(resize_shorter(image, RESIZE), CROP)


class _Dtype:
    """Stands in for numpy.dtype in a pickle."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.code = f"{state[1]}{self.code}"  # the order of bytes comes later than the type


class _Array:
    """Stands in for numpy.ndarray in a pickle. The real one would take addresses from a forged file for objects."""

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


def _read_record(path: Path) -> dict[str, Any]:
    with reading(path, "the record of an earlier run"):
        record = json.loads(path.read_text())
        return {"settings": dict(record["settings"]), "complete": dict(record["complete"])}


def _holds(path: Path, array: NDArray[Any]) -> bool:
    try:
        return np.array_equal(np.load(path), array)
    except (OSError, EOFError, ValueError):
        return False
