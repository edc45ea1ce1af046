"""Small labelled point clouds, and files of them."""

from __future__ import annotations

import numpy as np
import pytest

from ctta.data.dataset import Data
from ctta.data.datasets import open_stream

RNG = np.random.default_rng(0)
POINTS = (RNG.random((9, 1024, 3)) * 2 - 1).astype(np.float32)
LABELS = np.arange(9) % 4


def stream_of(path, dataset="cloud_arrays", **fields):
    return open_stream(Data.make({"dataset": dataset, "path": str(path), "batch": 4, **fields}))


def write_hdf5(path, points, labels):
    h5py = pytest.importorskip("h5py", reason="h5py is an extra: pip install 'ctta[hdf5]'")
    with h5py.File(path, "w") as file:
        file["data"], file["label"] = points, labels
