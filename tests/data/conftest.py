"""Clean images in files."""

from __future__ import annotations

import numpy as np
import pytest

from image_files import pictures, save


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "clean.npz"
    np.savez(path, images=pictures(), labels=np.array([3, 1, 4, 1, 5, 9, 2]))
    return path


@pytest.fixture
def folder(tmp_path):
    """Five PNG files in two classes, none square, none of the same size."""
    for i in range(5):
        save(tmp_path / "val" / f"n0{i % 2}" / f"{i}.png", pictures(1, 60 + i, 70)[0])
    return tmp_path / "val"
