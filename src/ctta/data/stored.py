"""The .npy files of public data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import reading, some

ENDS = 2**14  # bytes at both ends of a file that identify it: all files of a public set have the same length
SHOWN = 20  # files that a message lists


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
