"""ModelNet40-C in its public format.

    data_<corruption>_<severity>.npy   (2468, P, 3); P differs from corruption to corruption
    data_original.npy                  the clean point clouds
    label.npy                          (2468, 1), 0 to 39

Files are memory-mapped. The public set: zenodo.org/records/6017834.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint, some
from ctta.data.corrupted_clouds import CLOUD_DOMAINS, cloud_problems, label_problems
from ctta.data.dataset import Data, DataSet
from ctta.data.stored import StoredDomain
from ctta.data.stream import Stream

LABELS = "label.npy"
ENDS = 2**14  # bytes at both ends of a file that identify it: all the public files have the same length
SHOWN = 16  # files of each kind in a message

CLASSES = (
    *("airplane", "bathtub", "bed", "bench", "bookshelf", "bottle", "bowl", "car", "chair", "cone", "cup", "curtain"),
    *("desk", "door", "dresser", "flower_pot", "glass_box", "guitar", "keyboard", "lamp", "laptop", "mantel"),
    *("monitor", "night_stand", "person", "piano", "plant", "radio", "range_hood", "sink", "sofa", "stairs", "stool"),
    *("table", "tent", "toilet", "tv_stand", "vase", "wardrobe", "xbox"),
)


def modelnet40_c_stream(data: Data, domains: Sequence[tuple[str, int]]) -> Stream:
    """Return a stream over (corruption, severity) pairs of a ModelNet40-C folder; report all problems at once."""
    folder, names = data.folder, [_file(*domain) for domain in domains]
    wanted = dict.fromkeys([*names, LABELS])
    missing = [name for name in wanted if not (folder / name).is_file()]
    problems = [f"Missing: {some(missing, SHOWN)}."] if missing else []
    arrays = {
        name: array for name in wanted if name not in missing if (array := _map(folder / name, problems)) is not None
    }
    labels = arrays.get(LABELS, np.zeros(0, np.int64)).reshape(-1)
    for name in names:
        if name in arrays and LABELS in arrays:
            found = list(cloud_problems(np.atleast_1d(arrays[name])[:1]))  # only the first: to check all would read all
            found = found or list(label_problems(labels, len(arrays[name]), len(CLASSES)))
            problems += [f"{name}: {problem}" for problem in found]
    if problems:
        there = sorted(path.name for path in folder.glob("*.npy")) if folder.is_dir() else []
        raise InputError(
            f"{folder} cannot be used as ModelNet40-C. {' '.join(dict.fromkeys(problems))} Found: "
            f"{some(there, SHOWN) or 'no .npy file'}. The public set is zenodo.org/records/6017834: unpack it and give "
            "the folder with the .npy files."
        )
    rows = data.rows(len(labels))
    kept = labels[rows].astype(np.int64)
    made = [
        StoredDomain(name, severity, arrays[file][rows], kept)
        for file, (name, severity) in zip(names, domains, strict=True)
    ]
    return Stream(tuple(made), data.batch, CLASSES, fingerprint=fingerprint(folder, list(wanted), ENDS))


def _file(name: str, severity: int) -> str:
    return f"data_{name}_{severity}.npy" if severity else "data_original.npy"


def _map(path: Path, problems: list[str]) -> NDArray[Any] | None:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r")
        return array
    except (ValueError, OSError, EOFError) as error:
        problems.append(f"{path.name} cannot be read ({error}); it may be a truncated download.")
        return None


MODELNET40_C = DataSet(
    "ModelNet40-C",
    "the folder with data_<corruption>_<severity>.npy and label.npy.",
    modelnet40_c_stream,
    domains=CLOUD_DOMAINS,
    samples="clouds",
)
