"""ScanObjectNN, 15 classes of scanned objects, clean or corrupted on the fly: ScanObjectNN-C.

    test_objectdataset.h5, training_objectdataset.h5   data (n, 2048, 3), y up; label (n,)

The path is the folder of a split, for its test file, or one of the files. The paper's split is main_split_nobg, with
2309 training and 581 test objects. Each point cloud is centred on its mean and scaled into the unit sphere, as its
authors do. The public set: hkust-vgd.github.io/scanobjectnn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corrupted_clouds import CloudDataSet, cloud_stream
from ctta.data.dataset import Data
from ctta.data.hdf5 import read_clouds
from ctta.data.stream import Stream

TEST = "test_objectdataset.h5"
CLASSES = (
    *("bag", "bin", "box", "cabinet", "chair", "desk", "display", "door", "shelf", "table", "bed", "pillow", "sink"),
    *("sofa", "toilet"),
)


def into_unit_sphere(clouds: NDArray[Any]) -> NDArray[Any]:
    """Centre each point cloud on its mean and scale it so that its farthest point is at distance 1."""
    centred = clouds - clouds.mean(1, keepdims=True)
    farthest = np.linalg.norm(centred, axis=2).max(1)
    scaled: NDArray[Any] = centred / np.where(farthest > 0, farthest, 1)[:, None, None]
    return scaled


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    path = data.folder / TEST if data.folder.is_dir() else data.folder
    if not path.is_file():
        raise InputError(
            f"There is no file {path}. Give the folder of a split, such as main_split_nobg, with {TEST}, or the file. "
            "The public set is at hkust-vgd.github.io/scanobjectnn."
        )
    points, labels = read_clouds([path])
    regular = points.ndim == 3 and points.dtype.kind == "f" and points.size
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite afterwards is refused
        points = into_unit_sphere(points) if regular else points
    return cloud_stream(points, labels, domains, data, CLASSES)


SCANOBJECTNN = CloudDataSet(
    "ScanObjectNN", "the folder of a split, such as main_split_nobg, or one of its .h5 files.", _open
)
