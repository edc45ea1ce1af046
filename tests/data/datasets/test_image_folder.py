"""Own pictures in class folders: labels, order, sizes, and broken trees."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from ctta.base.errors import ConfigError, InputError
from ctta.data.corruptions import corrupt
from ctta.data.folders import wnids
from ctta.data.pictures import through_jpeg
from ctta.data.stream import Batch
from trees import WNIDS, opened, picture_names, refusal, truncate, write_classes


def test_own_classes_are_numbered_by_name(tmp_path):
    write_classes(tmp_path, ("zebra", "ant", "cat"), size=(40, 40), suffix=".png")
    stream = opened(tmp_path, domains="clean", batch=12)
    assert stream.classes == ("ant", "cat", "zebra")
    (batch,) = stream
    names = picture_names(stream)
    assert [stream.classes[label] for label in batch.y] == [name.partition("/")[0] for name in names]
    found = (batch.x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    for name, image in zip(names, found, strict=True):
        assert np.array_equal(image, np.asarray(Image.open(tmp_path / name)))


def test_wnids_are_ilsvrc_s_classes(tmp_path):
    write_classes(tmp_path)
    stream = opened(tmp_path, domains="clean")
    assert stream.classes == wnids()
    assert sorted(set(torch.cat([batch.y for batch in stream]).tolist())) == [1, 7, 999]
    assert sorted(set(opened(tmp_path, labels="sorted").domains[0].labels.tolist())) == [0, 1, 2]
    write_classes(tmp_path, ("cat",))
    assert "no wnids of ILSVRC: cat" in refusal(tmp_path)
    assert opened(tmp_path, labels="sorted").classes == ("cat", *WNIDS)


def test_the_order_is_mixed_by_the_seed_and_a_prefix_stays_a_prefix(tmp_path):
    write_classes(tmp_path, ("a", "b", "c"), each=10, size=(32, 32))
    names = picture_names(opened(tmp_path, severity=0))
    assert len(names) == len(set(names)) == 30
    assert {name[0] for name in names[:10]} == {"a", "b", "c"}
    assert picture_names(opened(tmp_path, images=7, severity=0)) == names[:7]
    assert picture_names(opened(tmp_path, seed=1, severity=0)) != names
    (tmp_path / "list.txt").write_text("b/b_3.JPEG\na/a_0.JPEG\n\nc/c_9.JPEG")
    listed = opened(tmp_path, list=str(tmp_path / "list.txt"), severity=0)
    assert picture_names(listed) == ("b/b_3.JPEG", "a/a_0.JPEG", "c/c_9.JPEG")
    assert listed.domains[0].labels.tolist() == [1, 0, 2]


def test_large_pictures_are_corrupted_and_go_through_jpeg(tmp_path):
    write_classes(tmp_path, ("a", "b"), each=2, suffix=".png")
    domain = opened(tmp_path, seed=3).domains[0]
    clean = np.stack(
        [np.asarray(Image.open(tmp_path / name)) for name in picture_names(opened(tmp_path, seed=3, severity=0))]
    )
    foggy = corrupt(clean, "fog", 5, "imagenet", 3)
    assert np.array_equal(domain.load(np.arange(4))[0], np.stack([through_jpeg(image) for image in foggy]))
    plain = opened(tmp_path, seed=3, jpeg=False).domains[0]
    assert np.array_equal(plain.load(np.array([2, 1]))[0], foggy[[2, 1]])
    small = opened(tmp_path, seed=3, constants="cifar").domains[0]
    assert np.array_equal(small.load(np.arange(4))[0], corrupt(clean, "fog", 5, "cifar", 3))
    assert np.array_equal(opened(tmp_path, severity=0, seed=3).domains[0].load(np.arange(4))[0], clean)


def test_a_cache_serves_several_folders_and_threads(tmp_path):
    one, two = (write_classes(tmp_path / name, ("a", "b"), size=(32, 32), offset=i) for i, name in enumerate("xy"))
    cache = str(tmp_path / "cache")
    for folder in (one, two):
        expected = torch.cat([batch.x for batch in opened(folder, batch=2)])
        assert torch.equal(torch.cat([batch.x for batch in opened(folder, batch=2, cache=cache)]), expected)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_pictures_of_many_sizes(tmp_path):
    write_classes(tmp_path, ("a",), size=(300, 400))
    write_classes(tmp_path, ("b",), size=(500, 333))
    text = refusal(tmp_path)
    assert "differ in size" in text
    assert "resize256" in text
    for changes, shape in (
        ({"preprocessing": "resize256"}, (3, 224, 224)),
        ({"preprocessing": "none"}, (3, 224, 224)),
        ({"size": 48}, (3, 48, 48)),
    ):
        assert {tuple(batch.x.shape[1:]) for batch in opened(tmp_path, domains="clean", **changes)} == {shape}
    with pytest.raises(ConfigError, match="exclude each other"):
        opened(tmp_path, preprocessing="none", size=48)
    write_classes(tmp_path, ("c",), size=(100, 300))
    text = refusal(tmp_path, preprocessing="none")
    assert "100 x 300 pixels" in text
    assert str(tmp_path / "c" / "c_") in text


def test_sizes_against_pil_and_by_hand(tmp_path):
    write_classes(tmp_path, ("a",), each=1, size=(300, 400), suffix=".png")
    stored = Image.open(tmp_path / "a" / "a_0.png")

    def image(**changes):
        return opened(tmp_path, domains="clean", **changes).domains[0].load(np.arange(1))[0][0]

    resized = np.asarray(stored.resize((341, 256), Image.Resampling.BILINEAR))  # 400 * 256 / 300 = 341.3
    assert np.array_equal(image(preprocessing="resize256"), resized[16:240, 58:282])  # (341 - 224) / 2 = 58.5, to even
    assert np.array_equal(image(preprocessing="none"), np.asarray(stored)[38:262, 88:312])


def test_broken_folders(tmp_path):
    assert "holds no class folders with pictures" in refusal(tmp_path / "none")
    write_classes(tmp_path, ("a", "b"), size=(32, 32))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    shutil.copy(tmp_path / "a" / "a_0.JPEG", tmp_path / "__MACOSX" / "a.JPEG")
    assert opened(tmp_path).classes == ("a", "b")
    (tmp_path / "list.txt").write_text("a/a_0.JPEG\na/a_77.JPEG\n")
    assert "Missing: a/a_77.JPEG." in refusal(tmp_path, list=str(tmp_path / "list.txt"))
    (tmp_path / "list.txt").write_text("a_0.JPEG\n")
    assert "one class/name per line" in refusal(tmp_path, list=str(tmp_path / "list.txt"))
    (tmp_path / "b" / "b_1.JPEG").write_bytes(b"")
    assert "Empty: b/b_1.JPEG." in refusal(tmp_path)
    shutil.copy(tmp_path / "a" / "a_0.JPEG", tmp_path / "loose.JPEG")
    assert "outside of class folders: loose.JPEG" in refusal(tmp_path)


@pytest.mark.parametrize(("content", "words"), [(b"<html>", "is a web page, not an image"), (None, "truncated")])
def test_a_bad_picture_is_named_when_it_is_due(tmp_path, content, words):
    write_classes(tmp_path, ("a", "b"), size=(64, 64))
    names = picture_names(opened(tmp_path, severity=0))
    bad = tmp_path / names[5]
    truncate(bad) if content is None else bad.write_bytes(content)
    batches = iter(opened(tmp_path, batch=2, size=64, domains=("clean", "fog")))
    assert [next(batches).step, next(batches).step] == [0, 1]
    with pytest.raises(InputError, match=words) as caught:
        next(batches)
    assert str(bad) in str(caught.value)


def test_decoding_ahead_changes_nothing_and_leaves_no_thread(tmp_path):
    write_classes(tmp_path, ("a", "b"), each=6, size=(64, 80))
    stream = opened(tmp_path, domains=("clean", "fog", "contrast"), size=64)
    assert stream.ahead > 0
    plain = Batch.__dataclass_fields__
    slow = type(stream)(**{**vars(stream), "ahead": 0})
    for start in (0, 2, 4):
        for left, right in zip(stream.batches(start), slow.batches(start), strict=True):
            for name in plain:
                one, two = getattr(left, name), getattr(right, name)
                assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
    batches = stream.batches()
    next(batches)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
