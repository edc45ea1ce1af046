"""ModelNet40-C in its public format.

    data_<corruption>_<severity>.npy   (2468, P, 3); P differs from corruption to corruption
    data_original.npy                  the clean point clouds
    label.npy                          (2468, 1), 0 to 39

Files are memory-mapped. The public set: zenodo.org/records/6017834.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint
from ctta.data.corrupted_clouds import CloudDataSet, cloud_problems, finite_rows, label_problems
from ctta.data.dataset import Data
from ctta.data.stored import ENDS, found_arrays, map_arrays
from ctta.data.stream import Domain, Stream

LABELS = "label.npy"

CLASSES = (
    *("airplane", "bathtub", "bed", "bench", "bookshelf", "bottle", "bowl", "car", "chair", "cone", "cup", "curtain"),
    *("desk", "door", "dresser", "flower_pot", "glass_box", "guitar", "keyboard", "lamp", "laptop", "mantel"),
    *("monitor", "night_stand", "person", "piano", "plant", "radio", "range_hood", "sink", "sofa", "stairs", "stool"),
    *("table", "tent", "toilet", "tv_stand", "vase", "wardrobe", "xbox"),
)


def modelnet40_c_stream(data: Data, domains: Sequence[tuple[str, int]]) -> Stream:
    """Return a stream over (corruption, severity) pairs of a ModelNet40-C folder; report all problems at once."""
    folder, names = data.folder, [_file(*domain) for domain in domains]
    wanted = list(dict.fromkeys([*names, LABELS]))
    arrays, problems = map_arrays(folder, wanted)
    labels = arrays.get(LABELS, np.zeros(0, np.int64)).reshape(-1)
    for name in names:
        if name in arrays and LABELS in arrays:
            found = list(cloud_problems(np.atleast_1d(arrays[name])[:1]))  # only the first: to check all would read all
            found = found or list(label_problems(labels, len(arrays[name]), len(CLASSES)))
            problems += [f"{name}: {problem}" for problem in found]
    if problems:
        raise InputError(
            f"{folder} cannot be used as ModelNet40-C. {' '.join(dict.fromkeys(problems))} {found_arrays(folder)} The "
            "public set is zenodo.org/records/6017834: unpack it and give the folder with the .npy files."
        )
    rows = data.rows(len(labels))
    kept = labels[rows].astype(np.int64)
    made = [
        Domain(name, severity, kept, partial(finite_rows, str(folder / file), arrays[file][rows]))
        for file, (name, severity) in zip(names, domains, strict=True)
    ]
    return Stream(tuple(made), data.batch, CLASSES, fingerprint=fingerprint(folder, wanted, ENDS))


def _file(name: str, severity: int) -> str:
    return f"data_{name}_{severity}.npy" if severity else "data_original.npy"


MODELNET40_C = CloudDataSet(
    "ModelNet40-C", "the folder with data_<corruption>_<severity>.npy and label.npy.", modelnet40_c_stream
)
