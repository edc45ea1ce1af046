"""arrays: an .npz or CIFAR's own pickles; labels are looked at; broken files are one sentence."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ctta import InputError
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)


def opened(path):
    return open_stream(Data(dataset="arrays", path=str(path), domains="clean", batch=6))


def test_an_npz(tmp_path):
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=np.arange(6) % 3, classes=["x", "y", "z"])
    stream = opened(tmp_path / "a.npz")
    images, labels = stream.domains[0].load(np.array([5, 0]))
    assert np.array_equal(images, IMAGES[[5, 0]])
    assert labels.tolist() == [2, 0]
    assert stream.classes == ("x", "y", "z")


@pytest.mark.parametrize(("name", "key"), [("test_batch", "labels"), ("test", "fine_labels")])
def test_cifar_as_published(tmp_path, name, key):
    rows = IMAGES.transpose(0, 3, 1, 2).reshape(6, -1)
    (tmp_path / name).write_bytes(pickle.dumps({b"data": rows, key.encode(): [3, 1, 4, 1, 5, 9]}, protocol=2))
    for path in (tmp_path, tmp_path / name):
        images, labels = opened(path).domains[0].load(np.arange(6))
        assert np.array_equal(images, IMAGES)
        assert labels.tolist() == [3, 1, 4, 1, 5, 9]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": IMAGES}, "has no labels"),
        ({"labels": np.arange(6)}, "has no 'images'"),
        ({"images": IMAGES / 255, "labels": np.arange(6)}, "must hold uint8 images"),
        ({"images": IMAGES, "labels": np.arange(5)}, "must hold 6 whole numbers as labels"),
        ({"images": IMAGES, "labels": np.arange(6) / 2}, "must hold 6 whole numbers as labels"),
        ({"images": IMAGES, "labels": np.arange(6) - 1}, "must be 0 or more. They go from -1 to 4"),
        ({"images": IMAGES, "labels": np.arange(6), "classes": ["a", "b"]}, "0 to 1, one of its classes"),
    ],
)
def test_odd_arrays(tmp_path, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=words):
        opened(tmp_path / "a.npz")


def test_broken_files(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(InputError, match="does not exist"):
        opened(path)
    path.write_bytes(b"<!doctype html>")
    with pytest.raises(InputError, match=r"is a web page, not an \.npz"):
        opened(path)
    np.savez(path, images=IMAGES, labels=np.arange(6))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match="truncated"):
        opened(path)
    with pytest.raises(InputError, match="A folder of pictures is the data set 'image_folder'"):
        opened(tmp_path)


def test_the_fingerprint_is_of_the_content(tmp_path):
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=np.arange(6))
    np.savez_compressed(tmp_path / "b.npz", images=IMAGES, labels=np.arange(6))
    np.savez(tmp_path / "c.npz", images=IMAGES, labels=np.arange(6)[::-1])
    one, same, other = (opened(tmp_path / f"{name}.npz").fingerprint for name in "abc")
    assert one == same != other
