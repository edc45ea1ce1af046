"""Clean labelled clouds, corrupted on the fly: what the cloud data sets share.

Cloud i of a domain is the same for every batch size, start and run. With `cache`, a domain's clouds are made once and
kept there; the files are mapped, not read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corruptions import CLOUD_NAMES, corrupt_clouds
from ctta.data.dataset import CLEAN, Data
from ctta.data.stream import Clouds, Labels, Rows, Stream

CLOUD_DOMAINS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"paper": CLOUD_NAMES, "all": CLOUD_NAMES, CLEAN: (CLEAN,)}
)
POINTS = 1024  # of a clean cloud that has more, the first; corruptions draw as many


@dataclass(frozen=True)
class CorruptedCloudDomain:
    """One corruption at one severity over clean clouds; severity 0 leaves them as they are."""

    name: str
    severity: int
    clouds: Clouds
    labels: Labels
    seed: int
    cache: Path | None = None
    fingerprint: str = ""  # of the clouds, so that several sets can share a cache
    first: int = 0  # which cloud of the whole set the first one is

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[Clouds, Labels]:
        if self.severity == 0:
            clouds = self.clouds[rows, :POINTS]
        elif self.cache is not None:
            clouds = np.load(self._cached(self.cache), mmap_mode="r")[rows]
        else:
            clouds = self._make(rows)
        return clouds, self.labels[rows]

    def corrupt(self, samples: Clouds, rows: Rows) -> Clouds:
        """These samples, as if they were the ones that it has in these rows."""
        number = self.first + rows
        return corrupt_clouds(samples, self.name, severity=self.severity, seed=self.seed, first=number)

    def _make(self, rows: Rows) -> Clouds:
        return self.corrupt(self.clouds[rows], rows)

    def _cached(self, folder: Path) -> Path:
        """The file with the whole domain, made if it is not there; its name tells these clouds from others."""
        path = folder / f"{self.name}-{self.severity}-seed{self.seed}-{len(self)}-{self.fingerprint}.npy"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.part")
            with temporary.open("wb") as file:
                np.save(file, self._make(np.arange(len(self))))
            temporary.replace(path)
        return path


def cloud_stream(
    clouds: NDArray[Any], labels: NDArray[Any], domains: Sequence[tuple[str, int]], data: Data, classes: Sequence[str]
) -> Stream:
    """A stream over (corruption, severity) pairs, all made from the same clean clouds."""
    if problems := [*cloud_problems(clouds), *label_problems(labels, len(clouds), len(classes))]:
        raise InputError(f"These clouds cannot be used. {' '.join(problems)}")
    cache = Path(data.cache) if data.cache else None
    rows = data.rows(len(clouds))
    kept, named = clouds[rows].astype(np.float32), labels.reshape(-1)[rows].astype(np.int64)
    fingerprint = hashlib.sha256(kept.tobytes() + named.tobytes()).hexdigest()[:16]
    made = (
        CorruptedCloudDomain(name, severity, kept, named, data.seed, cache, fingerprint, rows.start)
        for name, severity in domains
    )
    return Stream(tuple(made), data.batch, tuple(classes), fingerprint=fingerprint)


def cloud_problems(clouds: NDArray[Any]) -> Iterator[str]:
    """What is wrong with an array of clouds, as sentences."""
    if clouds.dtype.kind != "f" or clouds.ndim != 3 or clouds.shape[2] != 3 or not clouds.size:
        yield f"Clouds must be floating point (N, P, 3). Got {clouds.dtype} {clouds.shape}."
    elif not np.isfinite(clouds).all():
        yield f"Clouds hold NaN or infinity, first in cloud {np.argmin(np.isfinite(clouds).all((1, 2)))}."


def label_problems(labels: NDArray[Any], clouds: int, classes: int) -> Iterator[str]:
    """What is wrong with labels for so many clouds; 0 classes: their number is not known."""
    if labels.dtype.kind not in "iu" or labels.size != len(labels):
        yield f"Labels must be whole numbers (N,) or (N, 1). Got {labels.dtype} {labels.shape}."
    elif len(labels) != clouds:
        yield f"There must be one label a cloud. Got {len(labels)} for {clouds}."
    elif len(labels) and (labels.min() < 0 or (classes and labels.max() >= classes)):
        last = f" to {classes - 1}" if classes else ""
        yield f"Labels must run from 0{last}. These run from {labels.min()} to {labels.max()}."
