"""Clean images and arrays: .npz, CIFAR pickles, folders of pictures; damaged and hostile files."""

from __future__ import annotations

import os
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

from ctta.base.errors import InputError
from ctta.data.clean import read_clean_images
from ctta.data.stored import read_npz
from image_files import decoded, pictures, save


def python2_pickle(data, key, labels):
    """A dict with an array and a list, byte for byte as Python 2 and NumPy of that time wrote it."""

    def string(text):
        return b"U" + bytes([len(text)]) + text

    n, width = data.shape
    raw = data.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + string(b"b") + b"tR"
        b"(K\x01(" + b"J" + struct.pack("<i", n) + b"J" + struct.pack("<i", width) + b"t"
        b"cnumpy\ndtype\n("
        + string(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + string(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"](" + string(b"r\xe9n\xe9.png") + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(key) + numbers + string(b"filenames") + names + b"u."


@pytest.mark.parametrize(
    ("folder_name", "file", "key"),
    [
        ("cifar-10-batches-py", "test_batch", b"labels"),
        ("cifar-100-python", "test", b"fine_labels"),
    ],
)
@pytest.mark.parametrize("writer", ["python 2", "protocol 2", "protocol 4"])
def test_cifar_as_published(tmp_path, folder_name, file, key, writer):
    clean, labels = pictures(4), [7, 0, 99, 7]
    data = clean.transpose(0, 3, 1, 2).reshape(4, 3072)
    root = tmp_path / folder_name
    root.mkdir()
    if writer == "python 2":
        written = python2_pickle(data, key, labels)
        assert np.array_equal(pickle.loads(written, encoding="latin1")["data"], data)  # the real unpickler agrees
    else:
        batch = {b"data": np.asfortranarray(data), key: np.array(labels, ">i8"), b"coarse_labels": [1, 2, 3, 4]}
        written = pickle.dumps(batch, int(writer[-1]))
    (root / file).write_bytes(written)
    for path in (root, root / file):
        source = read_clean_images(path)
        assert np.array_equal(source.images, clean)
        assert source.labels.tolist() == labels


def test_npz_with_and_without_labels(tmp_path, npz):
    assert read_clean_images(npz).labels.tolist() == [3, 1, 4, 1, 5, 9, 2]
    np.savez(tmp_path / "bare.npz", images=pictures())
    source = read_clean_images(tmp_path / "bare.npz")
    assert source.labels is None
    assert np.array_equal(source.images[6], pictures()[6])
    assert source.classes == ()
    np.savez(tmp_path / "named.npz", images=pictures(), classes=["a", "b"])
    assert read_clean_images(tmp_path / "named.npz").classes == ("a", "b")


@pytest.mark.parametrize("ending", [".png", ".jpg", ".jpeg", ".JPEG", ".webp", ".bmp"])
def test_a_folder_of_pictures(tmp_path, ending):
    for name in ("b/2", "b/deep/1", "a/10", "a/9"):
        save(tmp_path / "in" / f"{name}{ending}", pictures(1)[0])
    save(tmp_path / "in" / ".thumbnails" / "0.png", pictures(1)[0])
    (tmp_path / "in" / "a" / "notes.txt").write_text("no image")
    source = read_clean_images(tmp_path / "in")
    assert source.places == ["a/10.JPEG", "a/9.JPEG", "b/2.JPEG", "b/deep/1.JPEG"]
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(source.images[[3]][0], decoded(tmp_path / "in" / "b" / "deep" / f"1{ending}"))


def test_grey_and_transparent_pictures_become_colour(tmp_path):
    for mode in ("L", "RGBA", "P", "1", "CMYK"):
        path = tmp_path / "in" / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pictures(1)[0]).convert(mode).save(path)
    source = read_clean_images(tmp_path / "in")
    assert {source.images[[i]][0].shape for i in range(5)} == {(32, 32, 3)}
    assert source.labels is None


class Harmful:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_wants_to_run_code_does_not(tmp_path, protocol):
    batch = {"data": pictures(1).reshape(1, -1) if protocol < 5 else 0, "labels": [Harmful(tmp_path / "mark")]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol))
    with pytest.raises(InputError, match=r"test_batch is refused\. It asks for \w+\.mkdir, .* could run code"):
        read_clean_images(tmp_path / "test_batch")
    assert not (tmp_path / "mark").exists()
    pickle.loads((tmp_path / "test_batch").read_bytes())
    assert (tmp_path / "mark").exists()  # the real unpickler runs it


def test_a_pickle_cannot_forge_addresses(tmp_path):
    """numpy.ndarray itself would take eight bytes of a file for the address of an object."""
    for code, forged in {
        "call": b"cnumpy\nndarray\n((K\x01tX\x01\x00\x00\x00OC\x08AAAAAAAAtR.",
        "state": pickle.dumps(np.array([None]), 2),
    }.items():
        (tmp_path / code).write_bytes(forged)
        with pytest.raises(InputError, match=code):
            read_clean_images(tmp_path / code)


def test_damaged_input_is_named(tmp_path, npz, folder):
    whole = npz.read_bytes()
    damaged = {
        "short.npz": whole[: len(whole) // 2],
        "flipped.npz": whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:],
        "empty.npz": b"",
        "array.npz": b"\x93NUMPY",
        "test_batch": pickle.dumps({"data": [1, 2]})[:-3],
        "number": pickle.dumps(1),
        "nothing": b"",
        "other": pickle.dumps({"data": np.zeros((2, 3072))}, 2),
    }
    for name, written in damaged.items():
        (tmp_path / name).write_bytes(written)
        with pytest.raises(InputError, match=name):
            read_clean_images(tmp_path / name)
    (folder / "n00" / "text.png").write_text("not an image")
    with pytest.raises(InputError, match=r"text\.png cannot be read as an image"):
        read_clean_images(folder)


def test_arrays_of_the_wrong_kind_are_refused(tmp_path):
    for arrays, message in (
        ({"x": pictures()}, r"no 'images'\. Found: x"),
        ({"images": pictures().astype(np.float32)}, r"uint8 images \(N, H, W, 3\)\. Got float32"),
        ({"images": pictures()[..., 0]}, r"Got uint8 \(7, 32, 32\)"),
        ({"images": pictures()[:0]}, r"Got uint8 \(0, 32, 32, 3\)"),
        ({"images": pictures(), "labels": np.arange(6)}, r"7 whole numbers as labels\. Got int64 \(6,\)"),
        ({"images": pictures(), "labels": np.zeros(7)}, "Got float64"),
    ):
        np.savez(tmp_path / "clean.npz", **arrays)
        with pytest.raises(InputError, match=message):
            read_clean_images(tmp_path / "clean.npz")


def test_named_arrays_of_an_npz(tmp_path):
    np.savez(tmp_path / "some.npz", points=np.zeros(3), other=np.ones(2))
    assert list(read_npz(tmp_path / "some.npz", ("points",), ("labels",))) == ["points"]
    with pytest.raises(
        InputError, match=r"has no 'labels'\. Found: points, other\. .*savez\(path, points=\.\.\., labels="
    ):
        read_npz(tmp_path / "some.npz", ("points", "labels"), ("classes",))
    with pytest.raises(InputError, match=r"There is no file .*none\.npz\. Give an \.npz with 'points'\."):
        read_npz(tmp_path / "none.npz", ("points",))
    np.savez(tmp_path / "objects.npz", points=np.array([{}], object))
    with pytest.raises(InputError, match=r"objects\.npz is refused\. It holds pickled objects"):
        read_npz(tmp_path / "objects.npz", ("points",))
