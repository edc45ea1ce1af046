"""Picture files: listing, reading, sizes, JPEG."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from ctta.base.errors import InputError
from ctta.data.pictures import (
    Fit,
    Pictures,
    centre_crop,
    files_below,
    picture_size,
    read_picture,
    resize_shorter,
    through_jpeg,
    to_jpeg,
)
from image_files import pictures, save


def test_files_below_a_folder(tmp_path):
    for name in ("a.png", "b/c.JPG", "b/.hidden.png", ".git/d.png", "__MACOSX/e.png", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert files_below(tmp_path) == (["a.png", "b/c.JPG"], "")
    assert files_below(tmp_path, (".txt",)) == (["b/notes.txt"], "")
    assert files_below(tmp_path / "none") == ([], "")


def test_every_mode_is_read_as_rgb(tmp_path):
    deep = np.arange(32 * 32, dtype=np.uint16).reshape(32, 32) * 64
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert np.array_equal(read_picture(tmp_path / "deep.png")[..., 1], deep // 257)
    for mode in ("L", "RGBA", "P", "1"):
        Image.fromarray(pictures(1)[0]).convert(mode).save(tmp_path / "some.png")
        assert read_picture(tmp_path / "some.png").shape == (32, 32, 3)


def test_the_orientation_of_a_camera(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.fromarray(pictures(1, 40, 60)[0]).save(tmp_path / "turned.png", exif=exif)
    assert read_picture(tmp_path / "turned.png").shape == (40, 60, 3)
    assert read_picture(tmp_path / "turned.png", upright=True).shape == (60, 40, 3)
    assert picture_size(tmp_path / "turned.png") == (40, 60)
    assert picture_size(tmp_path / "turned.png", upright=True) == (60, 40)
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        Image.fromarray(pictures(1, 4, 6)[0]).save(tmp_path / "turned.png", exif=exif)
        with Image.open(tmp_path / "turned.png") as stored:
            assert np.array_equal(read_picture(tmp_path / "turned.png", upright=True), ImageOps.exif_transpose(stored))


def test_sizes_by_hand():
    image = pictures(1, 30, 60)[0]
    assert resize_shorter(image, 15).shape == (15, 30, 3)
    assert np.array_equal(centre_crop(image, 10), image[10:20, 25:35])
    assert Fit()(image) is image
    assert Fit(20, 16)(image).shape == (16, 16, 3)
    with pytest.raises(InputError, match="30 x 60 pixels, too few to crop 31 x 31"):
        Fit(None, 31)(image)


def test_jpeg_is_that_of_pillow():
    image = pictures(1)[0]
    for quality in (85, 10):
        content = io.BytesIO()
        Image.fromarray(image).save(content, "JPEG", quality=quality)
        expected = np.asarray(Image.open(content))
        assert np.array_equal(through_jpeg(image, quality), expected)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(to_jpeg(image, quality)))), expected)


def test_pictures_by_row(tmp_path):
    images = pictures(3)
    for number, image in enumerate(images):
        save(tmp_path / f"{number}.png", image)
    names = [f"{number}.png" for number in range(3)]
    stored = Pictures(tmp_path, names, Fit())
    assert np.array_equal(stored[np.array([2, 0])], images[[2, 0]])
    cropped = Pictures(tmp_path, names, Fit(None, 16))
    assert np.array_equal(cropped[np.array([1])], images[1:2, 8:24, 8:24])
    prints = {stored.fingerprint(), cropped.fingerprint(), Pictures(tmp_path, names[::-1], Fit()).fingerprint()}
    assert len(prints) == 3
    save(tmp_path / "1.png", pictures(1, 40, 40)[0])
    with pytest.raises(InputError, match=r"differ in size: 0\.png \(32, 32\), 1\.png \(40, 40\)"):
        stored[np.array([0, 1])]
