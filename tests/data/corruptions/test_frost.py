"""Frost textures: drawn ones, and photographs from a folder."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ctta.base.errors import InputError
from ctta.data.corruptions import corrupt
from ctta.data.corruptions.frost import drawn_textures, photographs


def test_drawn_frost_is_bluish_white_and_varied():
    textures = drawn_textures()
    assert len(textures) == 5
    for texture in textures:
        red, _, blue = texture.mean(axis=(0, 1))
        assert blue > red
        assert texture.std() > 10
    assert drawn_textures() is textures


def test_frost_reads_a_folder_of_photographs(tmp_path):
    for i in range(6):
        Image.fromarray(np.full((400, 300, 3), 40 * i, np.uint8)).save(tmp_path / f"frost{i}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    x = np.zeros((60, 32, 32, 3), np.uint8)
    levels = np.unique(corrupt(x, "frost", 5, frost=tmp_path))
    # The first five photographs, at weight 0.45; the sixth is not drawn, as in the public code.
    assert levels.tolist() == [int(0.45 * 40 * i) for i in range(5)]
    assert np.array_equal(corrupt(x, "frost", 5, frost=tmp_path), corrupt(x, "frost", 5, frost=str(tmp_path)))


def test_a_folder_without_photographs_or_with_a_damaged_one_is_named(tmp_path):
    with pytest.raises(InputError, match="No frost photographs"):
        photographs(tmp_path)
    (tmp_path / "frost1.png").write_text("<html>")
    with pytest.raises(InputError, match=r"frost1\.png is a web page, not an image"):
        photographs(tmp_path)
