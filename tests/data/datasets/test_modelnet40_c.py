"""ModelNet40-C folders, whole and broken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctta.base.errors import InputError
from ctta.data.datasets.modelnet40_c import CLASSES
from point_clouds import LABELS, POINTS, stream_of


def write_modelnet40_c(folder):
    made = {"data_original": POINTS, "data_lidar_5": POINTS[:, :768], "data_background_5": np.tile(POINTS, (1, 2, 1))}
    for name, clouds in made.items():
        np.save(folder / f"{name}.npy", clouds.astype(np.float64))
    np.save(folder / "label.npy", LABELS[:, None])
    return made


def test_modelnet40_c(tmp_path):
    made = write_modelnet40_c(tmp_path)
    stream = stream_of(tmp_path, "modelnet40_c", domains=["background", "lidar", "clean"])
    assert isinstance(stream.domains[0].read.args[1], np.memmap)
    assert len(stream.classes) == 40
    assert stream.classes == tuple(sorted(CLASSES))
    batches = list(stream)
    for first, name in ((0, "data_background_5"), (3, "data_lidar_5"), (6, "data_original")):
        assert np.array_equal(torch.cat([batch.x for batch in batches[first : first + 3]]), made[name])
        assert torch.cat([batch.y for batch in batches[first : first + 3]]).tolist() == LABELS.tolist()
    assert [len(batch.x) for batch in stream_of(tmp_path, "modelnet40_c", domains="clean", images=6)] == [4, 2]


def test_broken_modelnet40_c_folders(tmp_path):
    with pytest.raises(InputError, match=r"Missing: data_uniform_5.npy.*data_lidar_5.npy, label.npy.*zenodo"):
        stream_of(tmp_path, "modelnet40_c")
    write_modelnet40_c(tmp_path)
    np.save(tmp_path / "data_background_5.npy", POINTS[:5])
    np.save(tmp_path / "data_original.npy", POINTS[0])
    whole = (tmp_path / "data_lidar_5.npy").read_bytes()
    (tmp_path / "data_lidar_5.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError) as caught:
        stream_of(tmp_path, "modelnet40_c", domains=["background", "lidar", "clean", "uniform"])
    said = str(caught.value)
    assert "Missing: data_uniform_5.npy." in said
    assert "data_lidar_5.npy cannot be read" in said
    assert "data_background_5.npy: There must be one label per point cloud. Got 9 for 5." in said
    assert "data_original.npy: Point clouds must be floating point (N, P, 3)" in said
