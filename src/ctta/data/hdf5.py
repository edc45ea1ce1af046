"""Point clouds in HDF5 files, with `data` (n, P, 3) and `label`. The only module that imports h5py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import check_growth, optional_import, reading

EXPECTED = "an HDF5 file with 'data', (n, P, 3), and 'label'"


def read_clouds(files: Sequence[Path]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return points (n, P, 3) and labels (n,) of several files, concatenated."""
    h5py = optional_import("h5py", "hdf5", "This data set, which is in HDF5 files,")
    parts, problems = [], []
    for path in files:
        try:
            with reading(path, EXPECTED), h5py.File(path, "r") as stored:
                points, labels = (_read(h5py, stored, name, path.stat().st_size) for name in ("data", "label"))
                parts.append((points, labels.reshape(-1)))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(
            f"{' '.join(problems)} Download what is damaged again and compare its size with the one on its page."
        )
    try:
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))  # type: ignore[return-value]
    except ValueError as error:
        raise InputError(f"{', '.join(path.name for path in files)} do not belong together ({error}).") from error


def _read(h5py: Any, stored: Any, name: str, length: int) -> NDArray[Any]:
    """Read an array of numbers that is in the file itself, after its size was checked."""
    link = stored.get(name, getlink=True)
    if link is None:
        raise InputError(f"It has no {name!r}.")
    if not isinstance(link, h5py.HardLink):
        raise InputError(f"{name!r} is a link, which could lead to another file.")
    array = stored[name]
    if not isinstance(array, h5py.Dataset) or not array.shape or array.dtype.kind not in "fiu":
        raise InputError(f"{name!r} is no array of numbers.")
    if array.external or array.is_virtual:
        raise InputError(f"{name!r} is kept in other files.")
    check_growth(array.nbytes, length)
    return np.asarray(array)
