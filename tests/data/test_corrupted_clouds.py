"""Point clouds corrupted on the fly: domains, batches, cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctta.base.errors import ConfigError
from ctta.data.corruptions import CLOUD_NAMES, corrupt_clouds
from ctta.data.datasets import DATASETS
from point_clouds import LABELS, POINTS, RNG, stream_of

SETS = ["embedded_clouds", "cloud_arrays", "modelnet40", "modelnet40_c", "scanobjectnn"]


@pytest.fixture
def arrays(tmp_path):
    path = tmp_path / "clouds.npz"
    np.savez(path, points=POINTS.astype(np.float16), labels=LABELS, classes=np.array(["a", "b", "c", "d"]))
    return path


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


def unused(*args, **kwargs):
    raise AssertionError("nothing is corrupted again")


def test_a_cache_gives_the_same_clouds_and_is_made_once(arrays, tmp_path, monkeypatch):
    fields = {"domains": ["shear", "density"], "cache": str(tmp_path / "cache")}
    expected = [batch.x for batch in stream_of(arrays, domains=["shear", "density"])]
    assert all(torch.equal(a, b.x) for a, b in zip(expected, stream_of(arrays, **fields), strict=True))
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2
    monkeypatch.setattr("ctta.data.corrupted_clouds.corrupt_clouds", unused)
    assert all(torch.equal(a, b.x) for a, b in zip(expected, stream_of(arrays, **fields), strict=True))


def test_of_larger_clean_clouds_the_first_points_are_taken(tmp_path):
    points = RNG.random((2, 1500, 3))
    np.savez(tmp_path / "large.npz", points=points, labels=np.array([[0], [1]]))
    (batch,) = stream_of(tmp_path / "large.npz", domains="clean")
    assert np.array_equal(batch.x, points[:, :1024].astype(np.float32))
    assert batch.y.tolist() == [0, 1]
