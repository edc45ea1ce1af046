"""Clean labelled images, corrupted on the fly.

Image i of a domain is the same for every batch size, start and run. With `cache`, a domain's images are made once and
kept there; the files are mapped, not read, so memory stays bounded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ctta.corruptions import corrupt
from ctta.errors import InputError
from ctta.streams.dataset import Data
from ctta.streams.stream import Images, Labels, Rows, Stream

LARGE = 64  # pixels; larger images get ImageNet's constants
CHUNK = 500  # images that are corrupted at a time while a cache is filled


@dataclass(frozen=True)
class CorruptedDomain:
    """One corruption at one severity over clean images; severity 0 leaves them as they are."""

    name: str
    severity: int
    images: Images
    labels: Labels
    preset: str
    seed: int
    cache: Path | None = None
    first: int = 0  # which image of the whole set the first one is

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[Images, Labels]:
        if self.severity == 0:
            images = self.images[rows]
        elif self.cache is not None:
            images = np.load(self._cached(self.cache), mmap_mode="r")[rows]
        else:
            images = self._make(rows)
        return images, self.labels[rows]

    def _make(self, rows: Rows) -> Images:
        clean, number = self.images[rows], self.first + rows
        return corrupt(clean, self.name, severity=self.severity, preset=self.preset, seed=self.seed, first=number)

    def _cached(self, folder: Path) -> Path:
        """The file with the whole domain, made if it is not there."""
        begin = f"{self.first}-" if self.first else ""
        path = folder / f"{self.name}-{self.severity}-{self.preset}-seed{self.seed}-{begin}{len(self)}.npy"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.part")
            made = np.lib.format.open_memmap(temporary, "w+", np.uint8, self.images.shape)
            for start in range(0, len(self), CHUNK):
                made[start : start + CHUNK] = self._make(np.arange(start, min(start + CHUNK, len(self))))
            made.flush()
            temporary.replace(path)
        return path


def corrupted_stream(
    images: Images, labels: Labels, domains: Sequence[tuple[str, int]], data: Data, classes: Sequence[str] = ()
) -> Stream:
    """A stream over (corruption, severity) pairs, all made from the same clean images."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise InputError(f"Images must be uint8 (N, H, W, 3). Got {images.dtype} {images.shape}.")
    if len(images) != len(labels) or not len(images):
        raise InputError(f"There must be one label an image, and at least one. Got {len(images)} and {len(labels)}.")
    rows = data.rows(len(images))
    images, labels = images[rows], labels[rows]
    preset = data.constants or ("imagenet" if max(images.shape[1:3]) > LARGE else "cifar")
    cache = Path(data.cache) if data.cache else None
    made = tuple(
        CorruptedDomain(name, severity, images, labels, preset, data.seed, cache, data.first)
        for name, severity in domains
    )
    return Stream(made, data.batch, tuple(classes))
