"""ModelNet-C of PointCloud-C: files 0 to 4 are severities 1 to 5."""

from __future__ import annotations

import numpy as np
import pytest

from ctta.base.errors import InputError
from ctta.data.datasets.modelnet_c import NAMES
from point_clouds import LABELS, POINTS, stream_of, write_hdf5


def test_severities_and_clean(tmp_path):
    for number in range(5):
        points = POINTS[:, : 20 + number] * (1 - 0.1 * number)
        write_hdf5(tmp_path / f"jitter_{number}.h5", points, LABELS[:, None].astype(np.uint8))
    write_hdf5(tmp_path / "clean.h5", POINTS, LABELS[:, None].astype(np.uint8))
    for severity in (1, 3, 5):
        stream = stream_of(tmp_path, "modelnet_c", domains=("jitter",), severity=severity, batch=9)
        (batch,) = stream
        assert np.allclose(batch.x, POINTS[:, : 19 + severity] * (1 - 0.1 * (severity - 1)))
        assert batch.y.tolist() == LABELS.tolist()
    (clean,) = stream_of(tmp_path, "modelnet_c", domains="clean", batch=9)
    assert np.array_equal(clean.x, POINTS)
    (few,) = stream_of(tmp_path, "modelnet_c", domains="clean", batch=9, first=2, images=3)
    assert np.array_equal(few.x, POINTS[2:5])


def test_an_incomplete_folder(tmp_path):
    write_hdf5(tmp_path / "jitter_0.h5", POINTS, LABELS)
    with pytest.raises(InputError, match=r"Missing: add_global_4.h5, .*Found: jitter_0.h5.*PointCloud-C"):
        stream_of(tmp_path, "modelnet_c", domains="paper")
    assert len(NAMES) == 7


def test_labels_beyond_the_classes(tmp_path):
    write_hdf5(tmp_path / "jitter_4.h5", POINTS, LABELS + 40)
    with pytest.raises(InputError, match=r"jitter_4.h5 cannot be used. Labels must run from 0 to 39"):
        stream_of(tmp_path, "modelnet_c", domains=("jitter",))
