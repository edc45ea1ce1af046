"""Cloud data sets on tiny files that the tests write, whole and broken."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from ctta.base.errors import ConfigError, InputError
from ctta.data.corruptions import CLOUD_NAMES, corrupt_clouds
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.datasets.modelnet40 import split_files
from ctta.data.datasets.modelnet40_c import CLASSES as MODELNET
from ctta.data.datasets.scanobjectnn import CLASSES as SCANS
from ctta.data.datasets.scanobjectnn import into_unit_sphere

RNG = np.random.default_rng(0)
POINTS = (RNG.random((9, 1024, 3)) * 2 - 1).astype(np.float32)
LABELS = np.arange(9) % 4
SETS = ["embedded_clouds", "cloud_arrays", "modelnet40", "modelnet40_c", "scanobjectnn"]


@pytest.fixture
def arrays(tmp_path):
    path = tmp_path / "clouds.npz"
    np.savez(path, points=POINTS.astype(np.float16), labels=LABELS, classes=np.array(["a", "b", "c", "d"]))
    return path


def stream_of(path, dataset="cloud_arrays", **fields):
    return open_stream(Data.make({"dataset": dataset, "path": str(path), "batch": 4, **fields}))


def test_domains_are_the_paper_s_fifteen():
    for name in SETS:
        assert DATASETS[name].domains["paper"] == CLOUD_NAMES
        assert DATASETS[name].domains["clean"] == ("clean",)
        assert DATASETS[name].samples == "clouds"
    assert len(CLOUD_NAMES) == 15
    with pytest.raises(ConfigError, match=r"no corruption 'fog'.*lidar"):
        stream_of("x", domains=["fog"])


def test_own_clouds_clean_and_corrupted(arrays):
    stream = stream_of(arrays, domains=["clean", "rotation", "density"], severity=3)
    batches = list(stream)
    assert stream.classes == ("a", "b", "c", "d")
    assert [len(batch.x) for batch in batches] == [4, 4, 1] * 3
    half = POINTS.astype(np.float16).astype(np.float32)
    assert batches[0].x.dtype == torch.float32
    assert np.array_equal(batches[1].x, half[4:8])
    assert np.array_equal(batches[4].x, corrupt_clouds(half[4:8], "rotation", severity=3, seed=0, first=4))
    assert batches[6].x.shape[1] < 1024
    assert batches[5].y.tolist() == LABELS[8:].tolist()
    assert [batch.severity for batch in batches] == [0] * 3 + [3] * 6


def test_clouds_do_not_depend_on_the_batch_or_the_order(arrays):
    small = torch.cat([batch.x for batch in stream_of(arrays, batch=2, domains=["cutout"])])
    large = torch.cat([batch.x for batch in stream_of(arrays, batch=9, domains=["cutout"])])
    assert torch.equal(small, large)
    (domain,) = stream_of(arrays, domains=["cutout"]).domains
    some, labels = domain.load(np.array([7, 2]))
    assert np.array_equal(some, large[[7, 2]])
    assert labels.tolist() == LABELS[[7, 2]].tolist()
    assert not torch.equal(large, torch.cat([b.x for b in stream_of(arrays, domains=["cutout"], seed=1)]))


def test_a_cache_gives_the_same_clouds_and_is_made_once(arrays, tmp_path, monkeypatch):
    fields = {"domains": ["shear", "density"], "cache": str(tmp_path / "cache")}
    expected = [batch.x for batch in stream_of(arrays, domains=["shear", "density"])]
    assert all(torch.equal(a, b.x) for a, b in zip(expected, stream_of(arrays, **fields), strict=True))
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2
    monkeypatch.setattr("ctta.data.corrupted_clouds.corrupt_clouds", None)  # would fail if it were called
    assert all(torch.equal(a, b.x) for a, b in zip(expected, stream_of(arrays, **fields), strict=True))


def test_of_larger_clean_clouds_the_first_points_are_taken(tmp_path):
    points = RNG.random((2, 1500, 3))
    np.savez(tmp_path / "large.npz", points=points, labels=np.array([[0], [1]]))
    (batch,) = stream_of(tmp_path / "large.npz", domains="clean")
    assert np.array_equal(batch.x, points[:, :1024].astype(np.float32))
    assert batch.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"points": POINTS}, "no 'labels'"),
        ({"images": POINTS}, "no 'points' and no 'labels'.*Found: images"),
        ({"points": POINTS[..., :2], "labels": LABELS}, r"\(N, P, 3\)"),
        ({"points": (POINTS * 9).astype(int), "labels": LABELS}, "floating point"),
        ({"points": POINTS[:0], "labels": LABELS[:0]}, "floating point"),
        ({"points": POINTS, "labels": LABELS[:3]}, "Got 3 for 9"),
        ({"points": POINTS, "labels": LABELS / 2}, "whole numbers"),
        ({"points": POINTS, "labels": LABELS - 1}, "from -1 to 2"),
        ({"points": POINTS, "labels": LABELS, "classes": np.array(["a"])}, "0 to 0.*from 0 to 3"),
        ({"points": np.where(POINTS > 0.999, np.nan, POINTS), "labels": LABELS[:1]}, "NaN.*one label a cloud"),
    ],
)
def test_bad_arrays(tmp_path, content, message):
    np.savez(tmp_path / "bad.npz", **content)
    with pytest.raises(InputError, match=message):
        stream_of(tmp_path / "bad.npz")


def test_files_that_are_no_arrays(tmp_path):
    with pytest.raises(InputError, match="no file"):
        stream_of(tmp_path / "none.npz")
    (tmp_path / "page.npz").write_text("<html>")
    with pytest.raises(InputError, match="cannot be read"):
        stream_of(tmp_path / "page.npz")
    np.savez(tmp_path / "whole.npz", points=POINTS, labels=LABELS)
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        stream_of(tmp_path / "half.npz")
    np.save(tmp_path / "one.npy", POINTS)
    with pytest.raises(InputError, match=r"npz with 'points'"):
        stream_of(tmp_path / "one.npy")


def write_modelnet40_c(folder):
    made = {"data_original": POINTS, "data_lidar_5": POINTS[:, :768], "data_background_5": np.tile(POINTS, (1, 2, 1))}
    for name, clouds in made.items():
        np.save(folder / f"{name}.npy", clouds.astype(np.float64))
    np.save(folder / "label.npy", LABELS[:, None])
    return made


def test_modelnet40_c(tmp_path):
    made = write_modelnet40_c(tmp_path)
    stream = stream_of(tmp_path, "modelnet40_c", domains=["background", "lidar", "clean"])
    assert isinstance(stream.domains[0].clouds, np.memmap)
    assert len(stream.classes) == 40
    assert stream.classes == tuple(sorted(MODELNET))
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
    assert "data_background_5.npy: There must be one label a cloud. Got 9 for 5." in said
    assert "data_original.npy: Clouds must be floating point (N, P, 3)" in said


def write_hdf5(path, points, labels):
    h5py = pytest.importorskip("h5py", reason="h5py is an extra: pip install 'ctta[hdf5]'")
    with h5py.File(path, "w") as file:
        file["data"], file["label"] = points, labels


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


def test_scanobjectnn(tmp_path):
    write_hdf5(tmp_path / "test_objectdataset.h5", POINTS * 3 + 1, LABELS)
    write_hdf5(tmp_path / "training_objectdataset.h5", POINTS[:2], LABELS[:2])
    stream = stream_of(tmp_path, "scanobjectnn", domains="clean", batch=9)
    assert len(stream.classes) == len(SCANS) == 15
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


def test_broken_hdf5(tmp_path):
    pytest.importorskip("h5py", reason="h5py is an extra: pip install 'ctta[hdf5]'")
    (tmp_path / "test_objectdataset.h5").write_bytes(b"not hdf5")
    with pytest.raises(InputError, match="not HDF5 files"):
        stream_of(tmp_path, "scanobjectnn")
    write_hdf5(tmp_path / "ply_data_test0.h5", POINTS, LABELS)
    write_hdf5(tmp_path / "ply_data_test1.h5", POINTS[:, :5], LABELS)
    with pytest.raises(InputError, match="do not belong together"):
        stream_of(tmp_path, "modelnet40")


def test_without_h5py_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "test_objectdataset.h5").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"pip install 'ctta\[hdf5\]'"):
        stream_of(tmp_path, "scanobjectnn")
