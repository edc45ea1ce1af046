"""Small sets of clean images in files."""

from __future__ import annotations

import numpy as np
from PIL import Image


def pictures(count=7, height=32, width=32):
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), np.uint8)


def save(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


def decoded(path):
    with Image.open(path) as picture:
        return np.asarray(picture)
