"""Domains whose samples are stored as the stream gives them, and the .npy files of public data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import reading, some
from ctta.data.stream import Labels, Rows

ENDS = 2**14  # bytes at both ends of a file that identify it: all files of a public set have the same length
SHOWN = 20  # files that a message lists


class SampleRows(Protocol):
    """Samples by row: an array, or picture files that are read when they are needed."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Rows, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class StoredDomain:
    """Stored samples and their labels."""

    name: str
    severity: int
    samples: SampleRows
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, rows: Rows) -> tuple[NDArray[Any], Labels]:
        return self.samples[rows], self.labels[rows]


def map_arrays(folder: Path, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Memory-map .npy files; return the arrays by name, and what is wrong with the other files."""
    missing = [name for name in names if not (folder / name).is_file()]
    problems = [f"Missing: {some(missing, SHOWN)}."] if missing else []
    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        try:
            if name not in missing:
                with reading(folder / name, "an array"):
                    arrays[name] = np.load(folder / name, mmap_mode="r")
        except InputError as error:
            problems.append(str(error))
    return arrays, problems


def found_arrays(folder: Path) -> str:
    """Describe which .npy files a folder holds, in a sentence."""
    found = sorted(path.name for path in folder.glob("*.npy")) if folder.is_dir() else []
    return f"Found: {some(found, SHOWN) or 'no .npy file'}."
