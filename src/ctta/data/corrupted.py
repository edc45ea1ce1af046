"""Clean labelled images, corrupted on the fly.

Image i of a domain is the same for every batch size, start and run. With `cache`, a domain's images are made once and
kept there; the files are mapped, not read, so memory stays bounded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from ctta.base.errors import InputError
from ctta.base.image_size import is_large
from ctta.data.corruptions import corrupt
from ctta.data.dataset import Data
from ctta.data.folders import AHEAD, Pictures
from ctta.data.pictures import through_jpeg
from ctta.data.stored import Source
from ctta.data.stream import Images, Labels, Rows, Stream

CHUNK = 500  # images that are corrupted at a time while a cache is filled
FILLING = Lock()  # batches that are made ahead may want the same file


@dataclass(frozen=True)
class CorruptedDomain:
    """One corruption at one severity over clean images; severity 0 leaves them as they are."""

    name: str
    severity: int
    images: Source
    labels: Labels
    preset: str
    seed: int
    jpeg: bool = False  # whether the corrupted image goes through JPEG
    cache: Path | None = None
    fingerprint: str = ""  # of the images, so that several sets can share a cache
    first: int = 0  # which of the images is the first

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[Images, Labels]:
        if self.severity == 0:
            images = self.images[self.first + rows]
        elif self.cache is not None:
            images = np.load(self._cached(self.cache), mmap_mode="r")[rows]
        else:
            images = self._make(rows)
        return images, self.labels[rows]

    def corrupt(self, samples: Images, rows: Rows) -> Images:
        """These samples, as if they were the ones that it has in these rows."""
        number = self.first + rows
        made = corrupt(samples, self.name, severity=self.severity, preset=self.preset, seed=self.seed, first=number)
        return np.stack([through_jpeg(image) for image in made]) if self.jpeg else made

    def _make(self, rows: Rows) -> Images:
        return self.corrupt(self.images[self.first + rows], rows)

    def _cached(self, folder: Path) -> Path:
        """The file with the whole domain, made if it is not there."""
        which = f"{self.first}-{len(self)}" if self.first else str(len(self))
        style = f"{self.preset}{'-jpeg' if self.jpeg else ''}-seed{self.seed}-{which}"
        path = folder / f"{self.name}-{self.severity}-{style}-{self.fingerprint}.npy"
        with FILLING:
            if not path.exists():
                self._fill(path)
        return path

    def _fill(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        shape = (len(self), *self.images[np.arange(1)].shape[1:])
        made = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
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
    """A stream over (corruption, severity) pairs, all made from the same clean images."""
    if isinstance(images, np.ndarray) and (images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3):
        raise InputError(f"Images must be uint8 (N, H, W, 3). Got {images.dtype} {images.shape}.")
    if len(images) != len(labels) or not len(images):
        raise InputError(f"There must be one label an image, and at least one. Got {len(images)} and {len(labels)}.")
    stored = isinstance(images, Pictures)  # chosen already
    rows = slice(0, len(images)) if stored else data.rows(len(images))
    fingerprint = fingerprint or _fingerprint(images, labels)
    preset = data.constants or ("imagenet" if is_large(*images[np.arange(1)].shape[1:3]) else "cifar")
    jpeg = data.jpeg if data.jpeg is not None else stored and preset == "imagenet"
    cache = Path(data.cache) if data.cache else None
    labels = labels[rows]
    made = tuple(
        CorruptedDomain(name, severity, images, labels, preset, data.seed, jpeg, cache, fingerprint, rows.start)
        for name, severity in domains
    )
    return Stream(made, data.batch, tuple(classes), fingerprint=fingerprint, ahead=AHEAD if stored else 0)


def _fingerprint(images: Images | Pictures, labels: Labels) -> str:
    told = images.fingerprint().encode() if isinstance(images, Pictures) else np.ascontiguousarray(images).tobytes()
    return hashlib.sha256(told + labels.tobytes()).hexdigest()[:16]
