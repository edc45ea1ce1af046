"""Samples without labels: what is read, in which order, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ctta import ConfigError, InputError
from ctta.data.unlabelled import natural, open_samples, open_unlabelled, read_image


def test_a_stream_has_batches_of_nearly_equal_size(tmp_path):
    np.save(tmp_path / "images.npy", np.arange(10, dtype=np.uint8).repeat(12).reshape(10, 2, 2, 3))
    stream = open_unlabelled(tmp_path / "images.npy", batch=3)
    found = [(batch.x[:, 0, 0, 0] * 255).round().int().tolist() for batch in stream]
    assert found == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert len(stream) == 4
    assert [batch.step for batch in stream.batches(2)] == [2, 3]
    assert all((batch.y == -1).all() for batch in stream)
    assert [(batch.first, batch.last) for batch in stream] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]


def test_what_cannot_be_read_is_left_out_and_remembered(tmp_path):
    for number in range(6):
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    for number in (1, 2, 3):
        (tmp_path / f"{number}.png").write_text("a web page")
    Image.fromarray(np.zeros((5, 4, 3), np.uint8)).save(tmp_path / "5.png")
    samples = open_samples(tmp_path, size=4)
    stream = open_unlabelled(tmp_path, batch=2, size=4)
    assert [(batch.step, len(batch.x)) for batch in stream] == [(0, 1), (2, 2)], "nothing of the second can be read"
    assert sorted(stream.samples.unread) == [1, 2, 3]
    assert "cannot be read as an image" in stream.samples.unread[2]
    assert samples.names == tuple(f"{number}.png" for number in range(6))


def test_a_shape_that_only_reading_shows_is_an_error_of_that_sample(tmp_path):
    for number, points in enumerate((4, 4)):
        np.save(tmp_path / f"{number}.npy", np.zeros((points, 3)))
    stream = open_unlabelled(tmp_path, batch=2)
    np.save(tmp_path / "1.npy", np.zeros((5, 3)))
    (batch,) = stream
    assert len(batch.x) == 1
    assert stream.samples.unread == {1: "Its shape is (5, 3), that of the others (4, 3)."}


def test_images_are_resized_by_the_shorter_side_and_cut_in_the_middle(tmp_path):
    stripes = np.zeros((10, 30, 3), np.uint8)
    stripes[:, 10:20] = 255  # the middle third is white
    Image.fromarray(stripes).save(tmp_path / "wide.png")
    image = read_image(tmp_path / "wide.png", 20)
    assert image.shape == (20, 20, 3)
    assert image[:, 2:-2].min() == 255
    assert np.array_equal(read_image(tmp_path / "wide.png"), stripes)


def test_images_of_every_kind(tmp_path):
    deep = Image.fromarray(np.array([[0, 257 * 100], [65535, 257]], np.uint16))
    deep.save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png")[..., 0].tolist() == [[0, 100], [255, 1]]
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(np.zeros((4, 9, 3), np.uint8)).save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg").shape == (9, 4, 3)
    (tmp_path / "deep.png").unlink()
    assert open_samples(tmp_path).shape == (3, 9, 4)
    palette = Image.fromarray(np.full((2, 2), 7, np.uint8)).convert("P")
    palette.save(tmp_path / "p.png", transparency=bytes([0, 255]))
    assert read_image(tmp_path / "p.png").shape == (2, 2, 3)


def test_batches_that_fill_the_memory_are_refused_before_one_is_read(tmp_path):
    for number in range(20):
        Image.new("1", (4032, 3024)).save(tmp_path / f"{number}.png")
    wanted = (
        r"batch of 20 samples of shape \(3, 3024, 4032\) takes 2\.9 GB, .* 1\.1 GB\. .*--size 224, or .* --batch 7\.$"
    )
    with pytest.raises(ConfigError, match=wanted):
        open_unlabelled(tmp_path, 64)
    with pytest.raises(ConfigError, match=r"takes 1\.2 GB"):
        open_unlabelled(tmp_path, 8)
    assert len(open_unlabelled(tmp_path, 7)) == 3
    assert len(open_unlabelled(tmp_path, 64, size=224)) == 1


def test_a_size_is_no_remedy_for_what_is_not_resized(tmp_path, monkeypatch):
    monkeypatch.setattr("ctta.data.unlabelled.BATCH", 1000)
    for name, array in (("images", np.zeros((9, 8, 8, 3), np.uint8)), ("clouds", np.zeros((9, 64, 3), np.float32))):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(ConfigError, match=rf"^{name}: .* GB\. Give a smaller batch, --batch 1\.$"):
            open_unlabelled(tmp_path / f"{name}.npy", 4)
    np.save(tmp_path / "large.npy", np.zeros((2, 16, 16, 3), np.uint8))
    with pytest.raises(ConfigError, match=r"a batch of 1 samples .* GB\. Give smaller samples\.$"):
        open_unlabelled(tmp_path / "large.npy", 1)


@pytest.mark.parametrize("form", ["folder", "colour", "grey"])
def test_images_of_one_channel(tmp_path, form):
    red, grey = np.zeros((2, 4, 5, 3), np.uint8)
    red[..., 0], grey[:] = 255, 100
    path = tmp_path if form == "folder" else tmp_path / "x.npy"
    if form == "folder":
        for number, image in enumerate((red, grey)):
            Image.fromarray(image).save(path / f"{number}.png")
    else:
        np.save(
            path,
            np.stack([red, grey]) if form == "colour" else np.array([76, 100], np.uint8).repeat(20).reshape(2, 4, 5, 1),
        )
    (batch,) = open_unlabelled(path, 2, channels=1)
    assert batch.x.shape == (2, 1, 4, 5)
    assert (batch.x * 255).round().amax((1, 2, 3)).tolist() == [76, 100], "0.299 of red; grey stays as it is"
    if form == "grey":
        with pytest.raises(InputError, match=r"or \(N, H, W, 1\) with --channels 1\."):
            open_unlabelled(path, 2)


def test_natural_order():
    assert sorted(["10.png", "9.png", "b/1.png", "a/02.png", "a/1.png"], key=natural) == [
        *("9.png", "10.png"),
        *("a/1.png", "a/02.png", "b/1.png"),
    ]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda root: root / "none", "is no folder"),
        (lambda root: root, "holds no images"),
        (lambda root: (root / "a.npy").write_text("x") and root / "a.npy", "cannot be read as an array"),
        (lambda root: np.save(root / "b.npy", np.zeros((4, 4))) or root / "b.npy", r"float64 \(4, 4\)"),
    ],
    ids=["nothing", "empty", "damaged", "wrong form"],
)
def test_folders_that_cannot_be_used(tmp_path, make, said):
    with pytest.raises(InputError, match=said):
        open_samples(make(tmp_path))
