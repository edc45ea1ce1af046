"""ScanObjectNN files, and their normalisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctta.base.errors import InputError
from ctta.data.datasets.scanobjectnn import CLASSES, into_unit_sphere
from point_clouds import LABELS, POINTS, stream_of, write_hdf5


def test_scanobjectnn(tmp_path):
    write_hdf5(tmp_path / "test_objectdataset.h5", POINTS * 3 + 1, LABELS)
    write_hdf5(tmp_path / "training_objectdataset.h5", POINTS[:2], LABELS[:2])
    stream = stream_of(tmp_path, "scanobjectnn", domains="clean", batch=9)
    assert len(stream.classes) == len(CLASSES) == 15
    (batch,) = stream
    torch.testing.assert_close(batch.x.mean(1), torch.zeros(9, 3), rtol=0, atol=1e-6)
    torch.testing.assert_close(batch.x.norm(dim=2).amax(1), torch.ones(9))
    (batch,) = stream_of(tmp_path / "training_objectdataset.h5", "scanobjectnn", domains="clean")
    assert batch.y.tolist() == [0, 1]
    with pytest.raises(InputError, match=r"main_split_nobg.*hkust"):
        stream_of(tmp_path / "none", "scanobjectnn")


def test_unit_sphere_by_hand():
    # Two points at 0 and 4 on x: the mean is 2, the farthest is 2 away.
    cloud = np.array([[[0.0, 1, 1], [4, 1, 1]], [[5, 5, 5], [5, 5, 5]]])
    assert into_unit_sphere(cloud).tolist() == [[[-1, 0, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 0]]]
