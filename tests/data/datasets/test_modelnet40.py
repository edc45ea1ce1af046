"""ModelNet40 folders, whole and incomplete."""

from __future__ import annotations

import numpy as np
import pytest

from ctta.base.errors import InputError
from ctta.data.datasets.modelnet40 import split_files
from point_clouds import LABELS, POINTS, stream_of, write_hdf5


def test_modelnet40(tmp_path):
    write_hdf5(tmp_path / "ply_data_test0.h5", POINTS[:5], LABELS[:5, None].astype(np.uint8))
    write_hdf5(tmp_path / "ply_data_test1.h5", POINTS[5:], LABELS[5:, None].astype(np.uint8))
    write_hdf5(tmp_path / "ply_data_train0.h5", POINTS[::-1], LABELS[::-1, None].astype(np.uint8))
    (batch,) = stream_of(tmp_path, "modelnet40", domains="clean", batch=9)
    assert np.array_equal(batch.x, POINTS)
    assert batch.y.tolist() == LABELS.tolist()
    # The public lists name paths of their own: only the names count.
    (tmp_path / "test_files.txt").write_text("data/modelnet40_ply_hdf5_2048/ply_data_test1.h5\n")
    (tmp_path / "train_files.txt").write_text("data/modelnet40_ply_hdf5_2048/ply_data_train0.h5\n")
    (batch,) = stream_of(tmp_path, "modelnet40", domains="clean", batch=9)
    assert np.array_equal(batch.x, POINTS[5:])
    (batch,) = stream_of(tmp_path / "train_files.txt", "modelnet40", domains="clean", batch=9)
    assert np.array_equal(batch.x, POINTS[::-1])


def test_an_incomplete_modelnet40(tmp_path):
    with pytest.raises(InputError, match=r"neither.*shapenet"):
        split_files(tmp_path)
    (tmp_path / "test_files.txt").write_text("a.h5\nb.h5\n")
    with pytest.raises(InputError, match=r"missing: a.h5, b.h5"):
        split_files(tmp_path)
