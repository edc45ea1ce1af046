"""Whole corrupted image sets, written in the file formats of the public benchmarks.

    CIFAR-C      OUT/<corruption>.npy, uint8 (5 N, H, W, 3): severities 1..5 stacked, N images each; severities that
                 were not requested are zero. OUT/labels.npy (5 N,)
    ImageNet-C   OUT/<corruption>/<severity>/<folder>/<name>.JPEG, quality 85

`plan_corruption` checks everything first and reports all problems together. `Export.run` may be stopped at any time and
resumed: `OUT/.progress/<corruption>.json` holds the settings and, for CIFAR-C, the number of complete images. A CIFAR-C
file is called `.npy.partial` until everything that was requested is in it.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, InputError, nearest
from ctta.base.fileio import fingerprint, read_whole, reading, some, write_atomically
from ctta.base.lock import locked
from ctta.base.text import quoted
from ctta.data.clean import CleanImages, read_clean_images
from ctta.data.corruptions.constants import GROUPS, NAMES, PRESETS, preset_for
from ctta.data.corruptions.domain import SEVERITIES, THREADS
from ctta.data.corruptions.frost import photograph_names, photographs
from ctta.data.corruptions.images import SMALLEST, corrupt
from ctta.data.pictures import CONVENTIONS, CROP, RESIZE, Images, Picture, Pictures, to_jpeg
from ctta.data.stored import map_array


def parse_corruptions(text: str) -> tuple[str, ...]:
    """Return the names in "all", "paper", "extra" or "fog,snow". `plan_corruption` checks that they exist."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(dict.fromkeys(name for word in words for name in GROUPS.get(word, (word,))))


def parse_severities(text: str) -> tuple[int, ...]:
    """Return the numbers in "5", "1-5" or "1,3,5". `plan_corruption` checks that they are in range."""
    severities: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d)\s*(?:-\s*(\d)\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ConfigError(f"Severities must be written like 5, 1-5 or 1,3,5. Got {quoted(text)} instead.")
        severities.update(range(first, last + 1))
    return tuple(sorted(severities))


@dataclass(frozen=True)
class ExportProgress:
    """How many images of all corruptions and severities are done, and which were written last."""

    done: int
    corruption: str
    severity: int


@dataclass(frozen=True)
class Export(ABC):
    """What will be written where, in one of the two formats. Made by `plan_corruption`."""

    path: Path
    out: Path
    clean: CleanImages
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    preset: str
    seed: int
    frost: Path | None
    format: ClassVar[str]

    @abstractmethod
    def place(self) -> str:
        """Return where the images go, for `describe`."""

    @abstractmethod
    def targets(self, corruption: str) -> tuple[Path, ...]:
        """Return the paths that a corruption is written to."""

    @abstractmethod
    def write(self, corruption: str, chunk: int) -> Iterator[tuple[int, int]]:
        """Write what is missing. Yield a severity and how many of its images were added, or existed before."""

    def problems(self) -> Iterator[str]:
        """Yield why the images cannot be written."""
        if len(small := np.flatnonzero(self.sizes.min(axis=1) < SMALLEST)):
            yield (
                f"Images must be at least {SMALLEST} pixels high and wide. {self.path} holds {len(small)} smaller ones "
                f"({self.named(small)}): enlarge them or take them out."
            )

    @property
    def images(self) -> int:
        return len(self.clean.places)

    @property
    def total(self) -> int:
        return self.images * len(self.corruptions) * len(self.severities)

    @property
    def crops(self) -> bool:
        """Whether pictures are resized to 256 and cropped to 224 pixels; those of 224 x 224 are not."""
        return isinstance(self.clean.images, Pictures) and self.preset == "imagenet"

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Height and width of the corrupted images, (N, 2)."""
        return np.full_like(self.clean.sizes, CROP) if self.crops else self.clean.sizes

    def describe(self) -> str:
        """Return the plan in one sentence."""
        what = f"{len(self.corruptions)} corruption{'s' * (len(self.corruptions) > 1)}"
        severities = f"severit{'y' if len(self.severities) == 1 else 'ies'} {', '.join(map(str, self.severities))}"
        crops = self.crops and (self.clean.sizes != CROP).any()
        crop = f", resized to {RESIZE} and cropped to {CROP} pixels" if crops else ""
        return (
            f"{what} at {severities} of the {self.images} images in {self.path}{crop}, with the {self.preset} "
            f"constants and seed {self.seed}, to {self.place()} ({self.total} images). {self.clean.note}".rstrip()
        )

    def run(self, chunk: int = 256) -> Iterator[ExportProgress]:
        """Write what does not exist yet. Yield after each chunk, and once per severity of an earlier run."""
        if chunk < 1:
            raise ConfigError(f"`chunk` must be at least 1. Got {quoted(chunk)} instead.")
        done = 0
        with locked(self.out / ".progress"):
            for corruption in self.corruptions:
                for severity, images in self.write(corruption, chunk):
                    done += images
                    yield ExportProgress(done, corruption, severity)

    def make(self, corruption: str, severity: int, rows: range) -> Images:
        """Return these images, corrupted."""
        clean = np.stack([self._picture(row) for row in rows])
        return corrupt(clean, corruption, severity, self.preset, self.seed, rows.start, self.frost)

    def _picture(self, row: int) -> Picture:
        image: Picture = self.clean.images[np.array([row])][0]
        if not self.crops or image.shape[:2] == (CROP, CROP):
            return image
        return CONVENTIONS["resize256"](image)

    def record_path(self, corruption: str) -> Path:
        return self.out / ".progress" / f"{corruption}.json"

    def record(self, corruption: str, complete: Mapping[int, int]) -> None:
        """Write the settings of a corruption, and how many images of each severity are complete."""
        record = {"settings": self.settings(corruption), "complete": complete}
        write_atomically(self.record_path(corruption), json.dumps(record).encode())

    def settings(self, corruption: str) -> dict[str, str | int]:
        """Return everything that decides what the files of a corruption hold."""
        frost = {}
        if corruption == "frost" and corruption in self.corruptions:
            frost["frost"] = fingerprint(self.frost, photograph_names(self.frost)) if self.frost else "drawn"
        return {"input": self.clean.identity, "preset": self.preset, "seed": self.seed, "format": self.format, **frost}

    def conflicts(self) -> Iterator[str]:
        """Yield conflicts: files of other origin are not overwritten, and a folder has one set of settings."""
        for path in sorted((self.out / ".progress").glob("*.json")):
            try:
                written = _read_record(path)["settings"]
            except InputError as error:
                yield str(error)
                continue
            now = self.settings(path.stem).items()
            if changed := [f"{key} {written.get(key)}, now {value}" for key, value in now if written.get(key) != value]:
                yield (
                    f"{self.out} was begun with other settings for {path.stem} ({'; '.join(changed)}): repeat the "
                    "earlier ones, or choose another folder."
                )
        new = (corruption for corruption in self.corruptions if not self.record_path(corruption).exists())
        for target in (target for corruption in new for target in self.targets(corruption) if target.exists()):
            yield f"{target} exists and was not made here: move it away, or choose another folder."

    def named(self, indices: NDArray[np.intp]) -> str:
        """Name some of these images, with their sizes."""
        names = [f"{self.clean.places[i]}: {self.sizes[i][0]} x {self.sizes[i][1]}" for i in indices]
        return some(names, 3)


class CifarC(Export):
    """One array per corruption, one row per image."""

    format = "cifar-c"

    def place(self) -> str:
        return f"{self.out / '<corruption>.npy'}, with{'out' * (self.clean.labels is None)} labels.npy"

    def targets(self, corruption: str) -> tuple[Path, Path]:
        return self.out / f"{corruption}.npy", self.out / f"{corruption}.npy.partial"

    def write(self, corruption: str, chunk: int) -> Iterator[tuple[int, int]]:
        final, part = self.targets(corruption)
        if self._labels is not None and not (self.out / "labels.npy").exists():
            content = io.BytesIO()
            np.save(content, self._labels)
            write_atomically(self.out / "labels.npy", content.getvalue())
        begun = final.exists() or part.exists()
        complete = _read_record(self.record_path(corruption))["complete"] if begun else {}
        if complete:
            found = map_array(final if final.exists() else part)
            if found.dtype != np.uint8 or found.shape != self._shape:
                raise InputError(f"{final} was begun with {found.dtype} {found.shape}, not {self._shape}: delete it.")
            del found
        todo = [
            (severity, range(start, min(start + chunk, self.images)))
            for severity in self.severities
            for start in range(complete.get(severity, 0), self.images, chunk)
        ]
        if todo and final.exists():  # an earlier run was asked for fewer severities
            final.replace(part)
        elif todo and not complete:
            self.record(corruption, {})
            open_memmap(part, mode="w+", dtype=np.uint8, shape=self._shape)
        elif not todo and part.exists():
            part.replace(final)
        yield from ((severity, complete[severity]) for severity in self.severities if severity in complete)
        for severity, rows in todo:
            stack, first = open_memmap(part, mode="r+"), (severity - 1) * self.images
            stack[first + rows.start : first + rows.stop] = self.make(corruption, severity, rows)
            stack.flush()
            del stack  # some systems do not rename a file that is mapped
            complete[severity] = rows.stop
            self.record(corruption, complete)
            if (severity, rows) == todo[-1]:
                part.replace(final)
            yield severity, len(rows)

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        path = self.out / "labels.npy"
        if self._labels is not None and path.exists() and not _holds(path, self._labels):
            yield f"{path} holds other labels than {self.path}: move it away, or choose another folder."

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        (usual, _), *_ = Counter(map(tuple, self.sizes.tolist())).most_common(1)
        if len(other := np.flatnonzero((self.sizes != usual).any(axis=1))):
            yield (
                f"A CIFAR-C file holds images of one size. {self.path} has {usual[0]} x {usual[1]} and {len(other)} "
                f"images of other sizes ({self.named(other)}): resize them, or choose the format imagenet-c."
            )
        # A memory-mapped file that does not fit on the disk would end the process.
        new = sum(not any(map(Path.exists, self.targets(corruption))) for corruption in self.corruptions)
        needed, free = new * int(np.prod(self._shape)), shutil.disk_usage(_existing(self.out)).free
        if needed > free:
            yield (
                f"{self.out} needs {needed / 1e9:.1f} GB and has {free / 1e9:.1f} GB free: free some space, or request "
                "fewer corruptions at a time."
            )

    @property
    def _shape(self) -> tuple[int, ...]:
        return len(SEVERITIES) * self.images, *self.sizes[0].tolist(), 3

    @property
    def _labels(self) -> NDArray[np.integer[Any]] | None:
        """The labels once per severity; uint8 as in the public files if they fit."""
        labels = self.clean.labels
        if labels is None:
            return None
        fits = labels.min() >= 0 and labels.max() < 256
        return np.tile(labels, len(SEVERITIES)).astype(np.uint8 if fits else np.int64)


class ImageNetC(Export):
    """One JPEG file per image."""

    format = "imagenet-c"

    def place(self) -> str:
        return str(self.out / "<corruption>" / "<severity>")

    def targets(self, corruption: str) -> tuple[Path, ...]:
        return (self.out / corruption,)

    def write(self, corruption: str, chunk: int) -> Iterator[tuple[int, int]]:
        self.record(corruption, {})
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            for severity in self.severities:
                for start in range(0, self.images, chunk):
                    part = range(start, min(start + chunk, self.images))
                    list(pool.map(partial(self._write_picture, corruption, severity), part))
                    yield severity, len(part)

    def _write_picture(self, corruption: str, severity: int, index: int) -> None:
        path = self.out / corruption / str(severity) / self.clean.places[index]
        if not path.exists():
            image = self.make(corruption, severity, range(index, index + 1))[0]
            write_atomically(path, to_jpeg(image), durable=False)  # a flush would take longer than the image


WRITERS: Mapping[str, type[Export]] = {writer.format: writer for writer in (CifarC, ImageNetC)}
FORMATS = ("auto", *WRITERS)


def plan_corruption(
    source: Path,
    out: Path,
    corruptions: Sequence[str],
    severities: Sequence[int],
    preset: str | None = None,
    seed: int = 0,
    format: str = "auto",  # noqa: A002
    frost: Path | None = None,
) -> Export:
    """Check everything that can be checked before the first image is written, and report all problems together.

    Without a preset, images with a side of more than 64 pixels get the constants of ImageNet. With those, pictures from
    a folder are resized to 256 and cropped to 224 pixels, unless they are 224 x 224. `auto` writes ImageNet-C from a
    folder of pictures and CIFAR-C from arrays. `frost` is a folder with the public frost photographs.
    """
    settings = _setting_problems(corruptions, severities, preset, seed, format)
    files = list(_out_problems(source, out))
    if frost and "frost" in corruptions:
        try:
            photographs(frost.absolute())
        except InputError as error:
            files.append(str(error))
    try:
        clean = read_clean_images(source)
    except InputError as error:
        raise _together(settings, [*files, str(error)]) from error
    usual = ImageNetC if isinstance(clean.images, Pictures) else CifarC
    plan = WRITERS.get(format, usual)(
        path=source,
        out=out,
        clean=clean,
        corruptions=tuple(dict.fromkeys(corruptions)),
        severities=tuple(sorted(set(severities))),
        preset=preset or preset_for(*np.median(clean.sizes, axis=0).astype(int).tolist()),
        seed=seed,
        frost=frost,
    )
    if not files:  # otherwise the output folder or the photographs cannot be examined
        settings += plan.conflicts()
    files += plan.problems()
    if settings or files:
        raise _together(settings, files)
    return plan


def _setting_problems(
    corruptions: Sequence[str], severities: Sequence[int], preset: str | None, seed: int, style: str
) -> list[str]:
    unknown, outside = (name for name in corruptions if name not in NAMES), set(severities) - set(SEVERITIES)
    problems = [f"No corruption is called {quoted(name)}. {nearest(name, NAMES)}" for name in unknown]
    problems += [f"The severity must be one of 1, 2, 3, 4, 5. Got {quoted(one)} instead." for one in sorted(outside)]
    if not corruptions:
        problems.append("No corruption was named: give at least one, or all.")
    if not severities:
        problems.append("No severity was given: give at least one of 1, 2, 3, 4, 5.")
    if seed < 0:
        problems.append(f"`seed` must be a whole number of at least 0. Got {quoted(seed)} instead.")
    for what, name, known in (("preset of constants", preset, PRESETS), ("format", style, FORMATS)):
        if name is not None and name not in known:
            problems.append(f"No {what} is called {quoted(name)}. {nearest(name, known)}")
    return problems


def _out_problems(source: Path, out: Path) -> Iterator[str]:
    home = _existing(out)
    if not home.is_dir():
        yield f"{home} is a file, so nothing can be written to {out}: choose another folder."
    elif not os.access(home, os.W_OK | os.X_OK):
        yield f"{home} cannot be written to: change its permissions, or choose another folder."
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        yield f"{out} lies in {source}, where its images would be taken for clean ones: choose another folder."


def _existing(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _together(settings: Sequence[str], files: Sequence[str]) -> ConfigError | InputError:
    return (ConfigError if settings else InputError)("\n".join([*settings, *files]))


def _read_record(path: Path) -> dict[str, Any]:
    with reading(path, "the record of an earlier run"):
        record = json.loads(read_whole(path, "the record of an earlier run"))
        complete = {int(severity): count for severity, count in record["complete"].items()}
        if not all(
            severity in SEVERITIES and type(count) is int and count >= 0 for severity, count in complete.items()
        ):
            raise InputError("It must hold a number of images per severity.")
        return {"settings": dict(record["settings"]), "complete": complete}


def _holds(path: Path, array: NDArray[Any]) -> bool:
    try:
        return np.array_equal(map_array(path), array)
    except InputError:
        return False
