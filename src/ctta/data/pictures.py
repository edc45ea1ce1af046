"""Single pictures: read from files, resized, cropped, put through JPEG."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ctta.base.errors import InputError
from ctta.base.fileio import reading

Picture: TypeAlias = NDArray[np.uint8]  # (H, W, 3)

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
DEEP_GREY = ("I", "I;16", "I;16B", "I;16L")  # 16 bits a pixel
RESIZE, CROP = 256, 224  # what the public ImageNet-C was made from
QUALITY = 85  # of its JPEG files


def files_below(root: Path, suffixes: tuple[str, ...] = PICTURES) -> Iterator[str]:
    """Relative paths, with slashes; hidden files and folders are left out."""
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        here = "".join(f"{part}/" for part in Path(folder).relative_to(root).parts)
        for name in files:
            if os.path.splitext(name)[1].lower() in suffixes and not name.startswith("."):
                yield here + name


def read_picture(path: Path, *, upright: bool = False) -> Picture:
    """RGB, whatever the file holds. A camera's note of how it was held counts where `upright` is wanted."""
    with reading(path, "an image"), Image.open(path) as stored:
        picture = ImageOps.exif_transpose(stored) if upright else stored
        if picture.mode in DEEP_GREY:
            picture = Image.fromarray((np.asarray(picture) // 257).astype(np.uint8))
        return np.asarray((picture.convert("RGBA") if picture.mode == "P" else picture).convert("RGB"))


def picture_size(path: Path) -> tuple[int, int]:
    """Height and width, from the file's head alone."""
    with reading(path, "an image"), Image.open(path) as picture:
        return picture.height, picture.width


def resize_shorter(image: Picture, size: int) -> Picture:
    """The shorter side gets so many pixels; bilinear with antialiasing."""
    height, width, _ = image.shape
    short = min(height, width)
    target = size * width // short, size * height // short
    return np.asarray(Image.fromarray(image).resize(target, Image.Resampling.BILINEAR))


def centre_crop(image: Picture, size: int) -> Picture:
    """The middle size x size pixels."""
    height, width, _ = image.shape
    top, left = round((height - size) / 2), round((width - size) / 2)
    return image[top : top + size, left : left + size]


def to_jpeg(image: Picture, quality: int = QUALITY, *, optimize: bool = True) -> bytes:
    """Return the content of a JPEG file, by default as the public ImageNet-C has them."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, "JPEG", quality=quality, optimize=optimize)
    return content.getvalue()


def through_jpeg(image: Picture, quality: int = QUALITY) -> Picture:
    """Save as JPEG and read again."""
    with Image.open(io.BytesIO(to_jpeg(image, quality, optimize=False))) as picture:  # faster, with the same pixels
        return np.asarray(picture)


@dataclass(frozen=True)
class Fit:
    """How a picture gets its size: its shorter side resized, then the middle of it; none leaves a step out."""

    resize: int | None = None
    crop: int | None = None

    def __call__(self, image: Picture) -> Picture:
        if self.resize is not None:
            image = resize_shorter(image, self.resize)
        if self.crop is None:
            return image
        if min(image.shape[:2]) < self.crop:
            height, width, _ = image.shape
            raise InputError(
                f"It has {height} x {width} pixels, too few to cut {self.crop} x {self.crop} from. Resize it first, "
                "with `preprocessing: resize256` or a `size`."
            )
        return centre_crop(image, self.crop)


CONVENTIONS = {"none": Fit(None, CROP), "resize256": Fit(RESIZE, CROP)}
