"""CCC's shards: order, labels, resuming, and damaged ones."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

from ctta.base.errors import InputError
from ctta.data.pictures import to_jpeg
from trees import opened, picture


def write_shard(path, samples, extra=()):
    """A shard as webdataset writes it: picture and label, one after the other."""
    with tarfile.open(path, "w") as shard:
        for name, seed, label in samples:
            for ending, content in (
                ("input.jpg", to_jpeg(np.asarray(picture(seed)))),
                ("output.cls", str(label).encode()),
            ):
                add(shard, f"sample_{name}.{ending}", content)
        for name, content in extra:
            add(shard, name, content)


def add(shard, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))


@pytest.fixture
def folder(tmp_path):
    write_shard(tmp_path / "serial_00001.tar", [(3, 3, 0), (4, 4, 42)])
    write_shard(tmp_path / "serial_00000.tar", [(10, 0, 7), (9, 1, 999), (11, 2, 7)])  # the order is that of the file
    return tmp_path


def test_the_order_of_the_shards_is_the_stream(folder):
    stream = opened(folder, "ccc", domains="paper", batch=2)
    assert stream.domains[0].labels.tolist() == [7, 999, 7, 0, 42]
    for seed, image in enumerate(stream.domains[0].read(np.arange(5))):
        assert np.abs(image.astype(int) - np.asarray(picture(seed))).mean() < 3
    batches = list(stream)
    assert [len(batch.y) for batch in batches] == [2, 2, 1]
    (last,) = stream.batches(2)
    assert last.x.equal(batches[2].x)
    assert last.x.shape == (1, 3, 224, 224)


def test_only_the_shards_that_are_needed_are_read(folder):
    (folder / "serial_00001.tar").write_bytes(b"damaged")
    stream = opened(folder, "ccc", domains="paper", first=1, images=2)
    assert stream.domains[0].labels.tolist() == [999, 7]
    with pytest.raises(InputError, match=r"serial_00001.tar cannot be read as a shard of CCC"):
        opened(folder, "ccc", domains="paper", images=4)


def test_identity(folder):
    one = opened(folder, "ccc", domains="paper").fingerprint
    write_shard(folder / "serial_00002.tar", [(5, 5, 1)])
    assert opened(folder, "ccc", domains="paper").fingerprint != one


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ([("sample_1.input.jpg", b"x")], "sample_1 has no label, or no picture"),
        ([("sample_1.output.cls", b"3")], "sample_1 has no label, or no picture"),
        (
            [("sample_1.input.jpg", b"x"), ("sample_1.output.cls", b"cat")],
            "0 to 999. It holds 'cat'",
        ),
        ([("sample_1.input.jpg", b"x"), ("sample_1.output.cls", b"1000")], "must hold a label, 0 to 999"),
        ([("readme.txt", b"x")], "It holds no"),
    ],
)
def test_shards_that_are_wrong(tmp_path, extra, words):
    write_shard(tmp_path / "serial_00000.tar", [], extra)
    with pytest.raises(InputError, match=words):
        opened(tmp_path, "ccc", domains="paper")


def test_a_picture_that_is_damaged_and_a_folder_without_shards(tmp_path):
    with pytest.raises(InputError, match=r"it has no .tar file.*oripress/CCC"):
        opened(tmp_path, "ccc", domains="paper")
    write_shard(tmp_path / "serial_00000.tar", [], [("s.input.jpg", b"no picture"), ("s.output.cls", b"3")])
    stream = opened(tmp_path, "ccc", domains="paper")
    with pytest.raises(InputError, match=r"serial_00000.tar"):
        next(iter(stream))


def test_links_and_compressed_shards_are_refused(tmp_path):
    with tarfile.open(tmp_path / "serial_00000.tar", "w") as shard:
        link = tarfile.TarInfo("s.input.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        shard.addfile(link)
        add(shard, "s.output.cls", b"3")
    with pytest.raises(InputError, match="s has no label, or no picture"):
        opened(tmp_path, "ccc", domains="paper")
    with tarfile.open(tmp_path / "serial_00000.tar", "w:gz") as shard:
        add(shard, "s.output.cls", b"3")
    with pytest.raises(InputError, match="cannot be read as a shard of CCC, an uncompressed tar"):
        opened(tmp_path, "ccc", domains="paper")
