"""Arrays in files made to fill the memory, to run code, or to be read as something else: .npy, .npz, pickles, HDF5."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from ctta.base.errors import ConfigError, InputError
from ctta.base.limits import RATIO, UNPACKED
from ctta.base.pickles import read_pickle
from ctta.data.clean import read_clean_images
from ctta.data.corruptions.visibility import read_off
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.export import plan_corruption
from ctta.data.stored import map_array, read_npz
from ctta.data.unlabelled import open_samples
from image_files import pictures
from mutations import mutated, refused_of

FEW = 2**26  # bytes that a refusal may take
IMAGES, LABELS = pictures(4), np.array([0, 1, 2, 1])
POINTS = np.linspace(-1, 1, 2 * 40 * 3, dtype=np.float32).reshape(2, 40, 3)
CUBE = "OFF\n4 2 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n4 0 1 2 3\n"


def npy(shape, descr="|u1", body=b"", version=(1, 0), head=None):
    """An .npy file with any header."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}) if head is None else head
    text = text.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + body


def npy_of(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def npz_of(compressed=False, **members):
    content = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(f"{name}.npy", member if isinstance(member, bytes) else npy_of(member))
    return content.getvalue()


def cheap(read, path):
    """Return the refusal, which may not take memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < FEW
    finally:
        tracemalloc.stop()
    assert path.name in str(caught.value)
    return str(caught.value)


def arrays(path, **changes):
    stream = open_stream(Data.make({"dataset": "arrays", "path": str(path), "domains": "clean", "batch": 2} | changes))
    for batch in stream:
        assert batch.x.shape[1:] == (3, 32, 32)
    return stream


def clouds(path, **changes):
    settings = {"dataset": "cloud_arrays", "path": str(path), "domains": "clean", "batch": 2}
    for batch in open_stream(Data.make(settings | changes)):
        assert batch.x.isfinite().all()


HUGE = 10**12
HEADERS = [
    ("a million million rows", npy((HUGE, 8, 8, 3))),
    ("more than an address", npy((2**63, 8, 8, 3))),
    ("rows without content", npy((HUGE, 0, 8, 3))),
    ("elements without content", npy((HUGE,), "|V0")),
    ("texts without content", npy((HUGE,), "<U0")),
    ("a negative shape", npy((-4, -8, 8, 3), body=bytes(768))),
    ("a shape that is no tuple", npy(5)),
    ("a shape of texts", npy(("4", "8"))),
    ("a float shape", npy((4.0, 8))),
    ("objects", npy((1,), "|O", pickle.dumps([os.mkdir]))),
    ("objects in fields", npy((1,), [("a", "|O")], bytes(8))),
    ("no type", npy((4,), "nonsense", bytes(4))),
    ("a type that is code", npy((4,), "__import__('os')", bytes(4))),
    ("a header that is code", npy((), head="__import__('os').mkdir('ran')")),
    ("a deep header", npy((), head="(" * 500)),
    ("a long header", npy((), head=" " * 60_000)),
    ("version 3", npy((4,), body=bytes(4), version=(3, 0))),
    ("version 9", npy((4,), body=bytes(4), version=(9, 9))),
    ("too short", npy((4, 8, 8, 3), body=bytes(100))),
    ("too long", npy((1,), body=bytes(100))),
    ("only the name", b"\x93NUMPY"),
    ("an .npz", npz_of(images=IMAGES)),
    ("a pickle", pickle.dumps(IMAGES)),
    ("nothing", b""),
    ("a web page", b"<html>"),
]


@pytest.mark.parametrize(("kind", "content"), HEADERS, ids=[case[0] for case in HEADERS])
def test_headers_of_arrays(tmp_path, attempt, kind, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, read in (("some.npy", map_array), ("open.npy", open_samples)):
        (tmp_path / name).write_bytes(content)
        cheap(read, tmp_path / name)
    for name in ("images", "labels", "classes"):
        whole = {"images": IMAGES, "labels": LABELS, "classes": np.array(["a", "b", "c"])}
        for compressed in (False, True):
            (tmp_path / "some.npz").write_bytes(npz_of(compressed, **whole | {name: content}))
            cheap(arrays, tmp_path / "some.npz")
    (tmp_path / "some.npz").write_bytes(npz_of(points=POINTS, labels=content))
    cheap(clouds, tmp_path / "some.npz")
    cheap(open_samples, tmp_path / "some.npz")
    assert not (tmp_path / "ran").exists()
    attempt("arrays that claim what they are not", 10)


def bomb(method=zipfile.ZIP_DEFLATED):
    """An .npz of 300 kB with images of 300 MB: all black."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive, archive.open("images.npy", "w", force_zip64=True) as member:
        rows = UNPACKED // 3072 + 10_000
        member.write(npy((rows, 32, 32, 3)))
        for _ in range(rows // 1000 + 1):
            member.write(bytes(3072 * 1000))
    return content.getvalue()


def lying(content, claimed):
    """Overwrite the unpacked length of the first member in the list of members."""
    place = content.rindex(b"PK\x01\x02")
    place = content.index(b"PK\x01\x02") if place else place
    return content[: place + 24] + struct.pack("<I", claimed) + content[place + 28 :]


def doubled():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("images.npy", npy_of(IMAGES))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("images.npy", npy_of(IMAGES))
    return content.getvalue()


ARCHIVES = [
    ("images that unpack to a thousand times their length", bomb, f"{RATIO} times the length"),
    ("images that unpack by another method", lambda: bomb(zipfile.ZIP_LZMA), f"{RATIO} times the length"),
    ("a length that is claimed too large", lambda: lying(npz_of(True, images=IMAGES), 2**31), "times the length"),
    ("a length that is claimed too small", lambda: lying(npz_of(True, images=IMAGES), 500), "cannot be read"),
    ("two arrays of one name", doubled, "holds 'images' more than once"),
    ("an archive in an archive", lambda: npz_of(images=npz_of(images=IMAGES)), "cannot be read"),
    ("names that lead elsewhere", lambda: npz_of(**{"../../images": IMAGES, "/images": IMAGES}), "has no 'images'"),
    ("float images", lambda: npz_of(images=IMAGES / 255, labels=LABELS), "must hold uint8 images"),
    ("NaN images", lambda: npz_of(images=np.full((4, 32, 32, 3), np.nan), labels=LABELS), "must hold uint8 images"),
    ("int images", lambda: npz_of(images=IMAGES.astype(np.int16) - 300, labels=LABELS), "must hold uint8 images"),
    ("one image", lambda: npz_of(images=IMAGES[0], labels=LABELS), "must hold uint8 images"),
    ("no labels", lambda: npz_of(images=IMAGES), "has no labels"),
    ("a label too many", lambda: npz_of(images=IMAGES, labels=np.arange(5)), "4 whole numbers as labels"),
    ("one label", lambda: npz_of(images=IMAGES, labels=np.array(3)), "4 whole numbers as labels"),
    ("float labels", lambda: npz_of(images=IMAGES, labels=LABELS * 1.0), "4 whole numbers as labels"),
    ("negative labels", lambda: npz_of(images=IMAGES, labels=LABELS - 1), "must be 0 or more"),
    (
        "labels beyond int64",
        lambda: npz_of(images=IMAGES, labels=LABELS.astype(np.uint64) + np.uint64(2**63)),
        "must be 0 or more",
    ),
    ("too few classes", lambda: npz_of(images=IMAGES, labels=LABELS, classes=np.array(["a"])), "must be 0 to 0"),
    ("one class", lambda: npz_of(images=IMAGES, labels=LABELS, classes=np.array("a")), "list of names as classes"),
    ("float classes", lambda: npz_of(images=IMAGES, labels=LABELS, classes=np.ones(3)), "list of names as classes"),
    ("bytes as classes", lambda: npz_of(images=IMAGES, labels=LABELS, classes=np.array([b"\xff"] * 3)), "in UTF-8"),
    ("a zip cut short", lambda: npz_of(images=IMAGES)[:-40], "cannot be read"),
]


@pytest.mark.parametrize(("kind", "make", "said"), ARCHIVES, ids=[case[0] for case in ARCHIVES])
def test_archives_of_arrays(tmp_path, attempt, kind, make, said):
    (tmp_path / "some.npz").write_bytes(make())
    assert said in cheap(arrays, tmp_path / "some.npz")
    attempt("archives that are not what they claim")


CLOUDS = [
    ("whole numbers", {"points": POINTS.astype(int)}, "floating point"),
    ("one number", {"points": np.float32(1)}, "floating point"),
    ("two coordinates", {"points": POINTS[..., :2]}, "floating point"),
    ("NaN", {"points": np.where(POINTS > 0.9, np.nan, POINTS)}, "NaN or infinity, first in number 1"),
    ("beyond float32", {"points": POINTS.astype(np.float64) * 1e300}, "NaN or infinity, first in number 0"),
    ("one label", {"labels": np.array(3)}, "one label per point cloud"),
    ("float labels", {"labels": np.array([0.0, 1.0])}, "whole numbers"),
    ("negative labels", {"labels": np.array([0, -1])}, "run from 0"),
    ("three labels", {"labels": np.arange(3)}, "one label per point cloud"),
]


@pytest.mark.parametrize(("kind", "changes", "said"), CLOUDS, ids=[case[0] for case in CLOUDS])
def test_point_clouds_of_the_wrong_kind(tmp_path, attempt, kind, changes, said):
    np.savez(tmp_path / "some.npz", **{"points": POINTS, "labels": np.array([0, 1])} | changes)
    assert said in cheap(clouds, tmp_path / "some.npz")
    attempt("archives that are not what they claim")


def test_nan_that_only_a_later_batch_meets(tmp_path, attempt):
    points = np.repeat(POINTS, 4, 0)
    points[5, 3] = np.inf
    np.save(tmp_path / "data_original.npy", points)
    np.save(tmp_path / "label.npy", np.zeros(8, int))
    stream = open_stream(Data(dataset="modelnet40_c", path=str(tmp_path), domains="clean", batch=2))
    with pytest.raises(InputError, match=r"data_original\.npy cannot be used.*NaN or infinity, first in number 1"):
        list(stream)
    attempt("archives that are not what they claim")


class Codec:
    def __init__(self, content, codec):
        self.content, self.codec = content, codec

    def __reduce__(self):
        import _codecs

        return _codecs.encode, (self.content, self.codec)


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def batch_of(data):
    return pickle.dumps({"data": data, "labels": [1, 2]}, 2)


def array_pickle(shape, dtype="u1", raw=bytes(3072)):
    """An array whose shape and content are free."""

    class State:
        def __reduce__(self):
            return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), (1, shape, np.dtype(dtype), False, raw)

    return batch_of(State())


DEEP = b"}N" + b"\x85" * 60_000 + b"Ns."  # a key of 60,000 tuples, one in the other
TWINS = b"})" + b"q\x00h\x00\x86" * 60 + b"Ns."  # a key of 2 ** 60 empty tuples
PICKLES = [
    ("a codec that unpacks", batch_of(Codec(zlib.compress(bytes(10**8)), "zlib_codec"))),
    ("a codec that unpacks in another way", batch_of(Codec(b"BZh9", "bz2_codec"))),
    ("a codec that turns letters", batch_of(Codec("qngn", "rot13"))),
    ("a large bytearray", batch_of(Call(bytearray, HUGE))),
    ("a large bytes", batch_of(Call(bytes, HUGE))),
    ("a range as a list", batch_of(Call(list, range(10**9)))),
    ("eval", batch_of(Call(eval, "__import__('os').mkdir('ran')"))),
    ("getattr", b"cbuiltins\ngetattr\n."),
    ("a shape without content", array_pickle((HUGE, 3072))),
    ("a shape that is too large", array_pickle((2, 3072))),
    ("a shape of another kind", array_pickle("3072")),
    ("objects", array_pickle((1,), "O", [os.mkdir])),
    ("floating point", array_pickle((3072,), "f8", bytes(8 * 3072))),
    ("texts", array_pickle((1,), "U3072", bytes(4 * 3072))),
    ("dates", array_pickle((384,), "M8[D]", bytes(3072))),
    ("a memo without end", b"}r\xff\xff\xff\xff."),
    ("a memo that is not there", b"h\x05."),
    ("a text without end", b"X\xff\xff\xff\x7fa."),
    ("bytes without end", b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."),
    ("a bytearray without end", b"\x96\xff\xff\xff\xff\xff\xff\xff\x00."),
    ("a number without end", b"\x8b\xff\xff\xff\x7f."),
    ("a number of many digits", b"I" + b"9" * 10**5 + b"\n."),
    ("a key that is deep", DEEP),
    ("a key that is large", TWINS),
    ("a key that cannot be one", b"}]Ns."),
    ("a dictionary in itself", b"}q\x00U\x04datah\x00s."),
    ("a list in itself", b"}U\x04data]q\x00h\x00as."),
    ("an extension", b"\x82\x01."),
    ("an instance", b"(ios\nmkdir\n."),
    ("an object", b"(cos\nmkdir\no."),
    ("a persistent name", b"Pname\n."),
    ("a persistent value", b"NQ."),
    ("a buffer", b"\x97."),
    ("a name from the stack", b"\x8c\x02os\x8c\x05mkdir\x93."),
    ("a name that is no text", b"NN\x93."),
    ("a call of data", b"N)R."),
    ("a state of data", b"}}b."),
    ("an empty stack", b"."),
    ("a mark that is not there", b"t."),
    ("a pair without a value", b"}(Nu."),
    ("no end", b"}"),
    ("nothing", b""),
    ("labels that are texts", pickle.dumps({"data": IMAGES.reshape(4, -1), "labels": ["1"] * 4}, 2)),
    ("labels that are lists", pickle.dumps({"data": IMAGES.reshape(4, -1), "labels": [[1]] * 4}, 2)),
    ("labels beyond int64", pickle.dumps({"data": IMAGES.reshape(4, -1), "labels": [2**70] * 4}, 2)),
    ("too few labels", pickle.dumps({"data": IMAGES.reshape(4, -1), "labels": [1]}, 2)),
    ("data of another size", pickle.dumps({"data": IMAGES.reshape(-1)[:-1], "labels": [1]}, 2)),
]


REASONS = {
    "a key that": "as a key",
    "a codec that": "otherwise than as latin1",
    "a call of data": "is no function",
}


@pytest.mark.parametrize(("kind", "content"), PICKLES, ids=[case[0] for case in PICKLES])
def test_pickles_of_cifar(tmp_path, attempt, kind, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(content)
    said = cheap(read_clean_images, tmp_path / "test_batch")
    for start, reason in REASONS.items():
        assert (reason in said) == kind.startswith(start)
    assert not (tmp_path / "ran").exists()
    attempt("pickles that want more than data")


def test_plain_pickles_are_read_as_they_were_written(attempt):
    plain = {"a": [1, -2, 2**40, 2**70, 0.5, None, True, False], b"b": (("x", b"y"), ()), 3: {"é": [[]], "": {}}}
    for protocol in range(6):
        assert (
            read_pickle(io.BytesIO(pickle.dumps(plain, protocol)), {"_codecs.encode": lambda t, c: t.encode(c)})
            == plain
        )
        attempt("pickles that want more than data")


def hdf5(path, data=None, label=None):
    h5py = pytest.importorskip("h5py", reason="h5py is an extra: pip install 'ctta[hdf5]'")
    with h5py.File(path, "w") as file:
        for name, made in (("data", data), ("label", label)):
            default = {"data": POINTS, "label": np.zeros((2, 1), np.uint8)}[name]
            if callable(made):
                made(h5py, file, name)
            else:
                file[name] = default if made is None else made


HDF5 = [
    (
        "a million million points that are not there",
        lambda h, f, n: f.create_dataset(n, (HUGE, 40, 3), "f4", chunks=(1, 40, 3)),
    ),
    ("zeros that unpack", lambda h, f, n: f.create_dataset(n, (10**7, 40, 3), "f4", chunks=(10, 40, 3), compression=9)),
    ("a link to another file", lambda h, f, n: f.__setitem__(n, h.ExternalLink("/etc/passwd", "x"))),
    ("a link in the file", lambda h, f, n: f.__setitem__(n, h.SoftLink(f"/{n}"))),
    ("content of another file", lambda h, f, n: f.create_dataset(n, (10,), "u1", external=[("/etc/passwd", 0, 10)])),
    ("a group", lambda h, f, n: f.create_group(n)),
    ("no content", lambda h, f, n: f.__setitem__(n, h.Empty("f"))),
    ("texts", lambda h, f, n: f.__setitem__(n, ["a", "b"])),
    ("fields", lambda h, f, n: f.__setitem__(n, np.zeros(2, [("x", "f4")]))),
    ("one number", lambda h, f, n: f.__setitem__(n, 1.5)),
    ("NaN", lambda h, f, n: f.__setitem__(n, POINTS * np.nan)),
    ("nothing", lambda h, f, n: None),
]


@pytest.mark.parametrize(("kind", "make"), HDF5, ids=[case[0] for case in HDF5])
@pytest.mark.parametrize("field", ["data", "label"])
@pytest.mark.parametrize("dataset", ["scanobjectnn", "modelnet40"])
def test_hdf5_files(tmp_path, attempt, kind, make, field, dataset):
    path = tmp_path / {"scanobjectnn": "test_objectdataset.h5", "modelnet40": "ply_data_test0.h5"}[dataset]
    hdf5(path, **{field: make})
    where = path if dataset == "scanobjectnn" else tmp_path
    with pytest.raises(InputError) as caught:
        open_stream(Data(dataset=dataset, path=str(where), domains="clean"))
    assert str(where) in str(caught.value)
    assert ("is a link" in str(caught.value)) == kind.startswith("a link")
    assert ("in other files" in str(caught.value)) == kind.startswith("content of another")
    attempt("HDF5 files")


def pipe(path):
    os.mkfifo(path)


OPENERS = [
    ("map_array", map_array, "x.npy"),
    ("read_npz", lambda path: read_npz(path, ("images",)), "x.npz"),
    ("read_clean_images", read_clean_images, "x.npz"),
    ("read_off", read_off, "x.off"),
    ("a list of HDF5 files", lambda path: open_stream(Data(dataset="modelnet40", path=str(path))), "x.txt"),
    ("ScanObjectNN", lambda path: open_stream(Data(dataset="scanobjectnn", path=str(path))), "x.h5"),
    ("CIFAR-10-C", lambda path: open_stream(Data(dataset="cifar10_c", path=str(path.parent))), "labels.npy"),
    ("unlabelled", open_samples, "x.npy"),
]


@pytest.mark.parametrize(("kind", "read", "name"), OPENERS, ids=[case[0] for case in OPENERS])
@pytest.mark.parametrize("make", [pipe, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()])
def test_pipes_devices_and_folders_are_not_opened(tmp_path, attempt, kind, read, name, make):
    make(tmp_path / name)
    with pytest.raises(InputError, match=name if kind != "CIFAR-10-C" else "labels"):
        read(tmp_path / name)
    attempt("pipes, devices and folders for files")


def cached(tmp_path):
    """Return a stream with a cache, and its file."""
    np.savez(tmp_path / "clean.npz", images=IMAGES, labels=LABELS)
    settings = {"dataset": "arrays", "path": str(tmp_path / "clean.npz"), "domains": ["fog"]}
    stream = open_stream(Data.make({**settings, "batch": 2, "cache": str(tmp_path / "cache")}))
    whole = [batch.x for batch in stream]
    (file,) = (tmp_path / "cache").iterdir()
    return stream, file, whole


CACHES = [
    ("cut", lambda content: content[:-5]),
    ("empty", lambda content: b""),
    ("of other samples", lambda content: npy_of(IMAGES[:3])),
    ("of more samples", lambda content: npy_of(pictures(9))),
    ("of another type", lambda content: npy_of(IMAGES.astype(float))),
    ("of another form", lambda content: npy_of(IMAGES[..., 0])),
    ("of objects", lambda content: npy((4,), "|O", bytes(32))),
    ("of claims", lambda content: npy((HUGE, 32, 32, 3))),
]


@pytest.mark.parametrize(("kind", "damage"), CACHES, ids=[case[0] for case in CACHES])
def test_a_damaged_cache_is_named(tmp_path, attempt, kind, damage):
    stream, file, _ = cached(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=file.name):
        list(stream)
    attempt("damaged caches and records")


def begun(tmp_path):
    """Return the plan of an export that was stopped after its first chunk."""
    np.savez(tmp_path / "clean.npz", images=IMAGES, labels=LABELS)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    next(iter(plan(tmp_path).run(chunk=2)))


def plan(tmp_path):
    return plan_corruption(tmp_path / "clean.npz", tmp_path / "out", ["fog"], [1, 2])


RECORDS = [
    ("empty", ".progress/fog.json", lambda content: b""),
    ("a list", ".progress/fog.json", lambda content: b"[]"),
    ("not UTF-8", ".progress/fog.json", lambda content: b'"\xff"'),
    ("deep", ".progress/fog.json", lambda content: b"[" * 10**5),
    ("a negative count", ".progress/fog.json", lambda content: content.replace(b'"1": 2', b'"1": -2')),
    ("a count that is a text", ".progress/fog.json", lambda content: content.replace(b'"1": 2', b'"1": "2"')),
    ("a severity that is none", ".progress/fog.json", lambda content: content.replace(b'"1": 2', b'"7": 2')),
    ("a severity that is a word", ".progress/fog.json", lambda content: content.replace(b'"1": 2', b'"one": 2')),
    ("a partial file of another form", "fog.npy.partial", lambda content: npy_of(IMAGES)),
    ("a partial file of another type", "fog.npy.partial", lambda content: npy_of(np.zeros((20, 32, 32, 3)))),
    ("a partial file that was cut", "fog.npy.partial", lambda content: content[:-1]),
    ("other labels", "labels.npy", lambda content: npy_of(np.zeros(20, np.uint8))),
    ("labels that were cut", "labels.npy", lambda content: content[:-1]),
]


@pytest.mark.parametrize(("kind", "name", "damage"), RECORDS, ids=[case[0] for case in RECORDS])
def test_an_export_is_not_resumed_from_damage(tmp_path, attempt, kind, name, damage):
    begun(tmp_path)
    file = tmp_path / "out" / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises((InputError, ConfigError), match=r"fog|labels"):
        list(plan(tmp_path).run())
    begun(tmp_path)
    assert [progress.done for progress in plan(tmp_path).run()][-1] == 8, "without damage it is"
    attempt("damaged caches and records")


MESHES = [
    "",
    "OFF",
    "OFF\n9 9 9",
    "OFF\n-1 -1",
    "OFF\n1 1\n0 0\n3 0 0 0",
    f"OFF\n1 1\n0 0 0\n3 0 0 {2**70}",
    "OFF\nx y z",
]


@pytest.mark.parametrize("content", [mesh.encode() for mesh in MESHES] + [b"OFF\xff", b"\0" * 99])
def test_meshes_that_are_none(tmp_path, attempt, content):
    (tmp_path / "some.off").write_bytes(content)
    with pytest.raises(InputError, match=r"some\.off"):
        read_off(tmp_path / "some.off")
    attempt("meshes")


def hdf5_bytes(tmp_path):
    hdf5(tmp_path / "seed.h5")
    return (tmp_path / "seed.h5").read_bytes()


def seed_of(name, tmp_path):
    match name:
        case "npy":
            return npy_of(IMAGES)
        case "npz":
            return npz_of(images=IMAGES, labels=LABELS, classes=np.array(["a", "b", "c"]))
        case "npz, packed":
            return npz_of(True, images=IMAGES, labels=LABELS)
        case "npz of point clouds":
            return npz_of(points=POINTS, labels=np.array([0, 1]))
        case "CIFAR":
            return batch_of(IMAGES.reshape(4, -1)).replace(b"K\x01K\x02", b"K\x01K\x02K\x01K\x00")
        case "HDF5":
            return hdf5_bytes(tmp_path)
        case _:
            return CUBE.encode()


def read_unlabelled(path):
    samples = open_samples(path)
    assert samples.read(np.arange(len(samples))).shape[1:] == (*samples.shape[1:], 3)


LOADERS = [
    ("npy", "some.npy", read_unlabelled, 360),
    ("npz", "some.npz", arrays, 360),
    ("npz, packed", "some.npz", arrays, 360),
    ("npz of point clouds", "some.npz", clouds, 360),
    ("CIFAR", "test_batch", arrays, 360),
    ("HDF5", "some.h5", lambda path: open_stream(Data(dataset="scanobjectnn", path=str(path), domains="clean")), 360),
    ("mesh", "some.off", read_off, 360),
]


@pytest.mark.parametrize(("kind", "name", "read", "count"), LOADERS, ids=[case[0] for case in LOADERS])
def test_damaged_arrays_are_read_or_refused(tmp_path, attempt, kind, name, read, count):
    content = seed_of(kind, tmp_path)
    assert refused_of([content], tmp_path / name, read) == 0
    assert refused_of(mutated(content, count), tmp_path / name, read) > count / 10
    attempt("damaged arrays", count)


def test_records_that_are_json_of_another_kind(tmp_path, attempt):
    begun(tmp_path)
    file = tmp_path / "out" / ".progress" / "fog.json"
    whole = json.loads(file.read_text())
    for changed in ({}, {"settings": 3, "complete": {}}, {"settings": {}, "complete": []}, whole | {"complete": None}):
        file.write_text(json.dumps(changed))
        with pytest.raises((InputError, ConfigError), match="fog"):
            list(plan(tmp_path).run())
        attempt("damaged caches and records")
