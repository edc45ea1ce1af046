"""Clean labelled samples, corrupted on the fly.

Sample i of a domain is the same for every batch size, start and run. With `cache`, the samples of a domain are made
once and kept in a file, which is memory-mapped, so that memory stays bounded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corruptions import corrupt
from ctta.data.corruptions.constants import preset_for
from ctta.data.dataset import Data
from ctta.data.pictures import Images, Pictures, through_jpeg
from ctta.data.stored import SampleRows, StoredDomain
from ctta.data.stream import AHEAD, Labels, Rows, Stream

CHUNK = 500  # samples that are corrupted at a time while a cache is filled
FILLING = Lock()  # batches that are loaded ahead may need the same file


@dataclass(frozen=True)
class CorruptedDomain:
    """One corruption at one severity of clean samples."""

    name: str
    severity: int
    samples: SampleRows
    labels: Labels
    apply: Callable[..., NDArray[Any]]  # (samples, name, severity=..., first=...) to corrupted samples
    first: int  # the number of the first sample in the data set
    cache: Path | None
    settings: str  # those of `apply`, for the name of the cached file
    fingerprint: str  # of the samples, so that several data sets can share a cache

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[NDArray[Any], Labels]:
        made = self._make(rows) if self.cache is None else np.load(self._cached(self.cache), mmap_mode="r")[rows]
        return made, self.labels[rows]

    def corrupt(self, samples: NDArray[Any], rows: Rows) -> NDArray[Any]:
        """Corrupt other samples as if they were the ones in these rows."""
        return self.apply(samples, self.name, severity=self.severity, first=self.first + rows)

    def _make(self, rows: Rows) -> NDArray[Any]:
        return self.corrupt(self.samples[rows], rows)

    def _cached(self, folder: Path) -> Path:
        """Return the file with the whole domain; write it if it does not exist."""
        which = f"{self.first}-{len(self)}" if self.first else str(len(self))
        path = folder / f"{self.name}-{self.severity}-{self.settings}-{which}-{self.fingerprint}.npy"
        with FILLING:
            if not path.exists():
                self._fill(path)
        return path

    def _fill(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        sample = self._make(np.arange(1))
        made = np.lib.format.open_memmap(temporary, "w+", sample.dtype, (len(self), *sample.shape[1:]))
        for start in range(0, len(self), CHUNK):
            made[start : start + CHUNK] = self._make(np.arange(start, min(start + CHUNK, len(self))))
        made.flush()
        temporary.replace(path)


def corrupted_stream(
    images: Images | Pictures,
    labels: Labels,
    domains: Sequence[tuple[str, int]],
    data: Data,
    classes: Sequence[str] = (),
    fingerprint: str = "",
) -> Stream:
    """Return a stream over (corruption, severity) pairs, all made from the same clean images."""
    if isinstance(images, np.ndarray) and (images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3):
        raise InputError(f"Images must be uint8 (N, H, W, 3). Got {images.dtype} {images.shape}.")
    if len(images) != len(labels) or not len(images):
        raise InputError(f"There must be one label per image, and at least one. Got {len(images)} and {len(labels)}.")
    fingerprint = fingerprint or _fingerprint(images, labels)
    preset = data.constants or preset_for(*images[np.arange(1)].shape[1:3])
    first, ahead, jpeg = 0, 0, bool(data.jpeg)
    if isinstance(images, Pictures):  # which of them are used was decided when they were listed
        ahead, jpeg = AHEAD, preset == "imagenet" if data.jpeg is None else data.jpeg
    else:
        rows = data.rows(len(images))
        first, images, labels = rows.start, images[rows], labels[rows]
    apply = partial(_corrupt_images, preset=preset, jpeg=jpeg, seed=data.seed)
    settings = f"{preset}{'-jpeg' * jpeg}-seed{data.seed}"
    cache = Path(data.cache) if data.cache else None
    made = tuple(
        CorruptedDomain(name, severity, images, labels, apply, first, cache, settings, fingerprint)
        if severity
        else StoredDomain(name, severity, images, labels)
        for name, severity in domains
    )
    return Stream(made, data.batch, tuple(classes), fingerprint=fingerprint, ahead=ahead)


def _corrupt_images(images: Images, name: str, *, preset: str, jpeg: bool, **which: Any) -> Images:
    made = corrupt(images, name, preset=preset, **which)
    return np.stack([through_jpeg(image) for image in made]) if jpeg else made


def _fingerprint(images: Images | Pictures, labels: Labels) -> str:
    content = images.fingerprint().encode() if isinstance(images, Pictures) else np.ascontiguousarray(images).tobytes()
    return hashlib.sha256(content + labels.tobytes()).hexdigest()[:16]
