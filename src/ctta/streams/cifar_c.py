"""CIFAR-10-C and CIFAR-100-C by their public files, and what `ctta corrupt` writes in that format.

    <corruption>.npy   uint8 (5 N, H, W, 3), severities stacked in order, N images each
    labels.npy         (5 N,) or (N,)

Files are mapped, not read. The public sets: zenodo.org/records/2535967 and zenodo.org/records/3555552.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ctta.errors import InputError
from ctta.streams.dataset import Data, DataSet
from ctta.streams.stream import Images, Labels, Rows, Stream

SEVERITIES = 5


@dataclass(frozen=True)
class FileDomain:
    """One severity of one file."""

    name: str
    severity: int
    images: Images  # mapped
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[Images, Labels]:
        return self.images[rows], self.labels[rows]


def cifar_c_stream(data: Data, domains: Sequence[tuple[str, int]]) -> Stream:
    """A stream over (corruption, severity) pairs of a CIFAR-C folder."""
    folder = data.folder
    problems = [f"{name}.npy" for name, _ in domains if not (folder / f"{name}.npy").is_file()]
    problems += ["labels.npy"] if not (folder / "labels.npy").is_file() else []
    if problems:
        found = sorted(path.name for path in folder.glob("*.npy")) if folder.is_dir() else []
        raise InputError(
            f"{folder} is not a complete CIFAR-C folder. Missing: {', '.join(sorted(set(problems)))}. Found: "
            f"{', '.join(found) or 'no .npy file'}. The public sets are zenodo.org/records/2535967 (CIFAR-10-C) and "
            "zenodo.org/records/3555552 (CIFAR-100-C); unpack the archive and give the folder with the .npy files."
        )
    labels = np.load(folder / "labels.npy").astype(np.int64)
    made = [_domain(folder, name, severity, labels, data) for name, severity in domains]
    return Stream(tuple(made), data.batch)


def _domain(folder: Path, name: str, severity: int, labels: Labels, data: Data) -> FileDomain:
    path = folder / f"{name}.npy"
    try:
        stored = np.load(path, mmap_mode="r")
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as an array ({error}). It may be a truncated download.") from error
    if stored.dtype != np.uint8 or stored.ndim != 4 or stored.shape[-1] != 3 or len(stored) % SEVERITIES:
        raise InputError(
            f"{path} must be uint8 (5 N, H, W, 3), five severities stacked. Got {stored.dtype} {stored.shape}."
        )
    count = len(stored) // SEVERITIES
    if len(labels) not in (count, len(stored)):
        raise InputError(f"labels.npy has {len(labels)} entries; {path} needs {count} or {len(stored)}.")
    start, rows = (severity - 1) * count, data.rows(count)
    keep = slice(start + rows.start, start + rows.stop)
    label_keep = keep if len(labels) == len(stored) else rows
    return FileDomain(name, severity, stored[keep], labels[label_keep])


FOLDER = "the folder with the .npy files, one a corruption, and labels.npy."
CIFAR10_C = DataSet("CIFAR-10-C", FOLDER, cifar_c_stream)
CIFAR100_C = DataSet("CIFAR-100-C", FOLDER, cifar_c_stream)
