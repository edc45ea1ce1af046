"""Point clouds in HDF5 files, with `data` (n, P, 3) and `label`. The only module that imports h5py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import optional_import


def read_clouds(files: Sequence[Path]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return points (n, P, 3) and labels (n,) of several files, concatenated."""
    h5py = optional_import("h5py", "hdf5", "This data set, which is in HDF5 files,")
    parts, problems = [], []
    for path in files:
        try:
            with h5py.File(path, "r") as stored:
                parts.append((np.asarray(stored["data"]), np.asarray(stored["label"]).reshape(-1)))
        except (OSError, KeyError, TypeError, ValueError) as error:
            problems.append(f"{path} ({error})")
    if problems:
        raise InputError(
            f"These are damaged, or not HDF5 files with 'data', (n, P, 3), and 'label': {'; '.join(problems)}. "
            "Download them again and compare their size with the one on their page."
        )
    try:
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))  # type: ignore[return-value]
    except ValueError as error:
        raise InputError(f"{', '.join(path.name for path in files)} do not belong together ({error}).") from error
