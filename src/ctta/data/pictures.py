"""Picture files: read, resized, cropped, saved as JPEG."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ctta.base.errors import CttaError, InputError
from ctta.base.fileio import fingerprint, hashed, reading

Picture: TypeAlias = NDArray[np.uint8]  # (H, W, 3)
Images: TypeAlias = NDArray[np.uint8]  # (N, H, W, 3)

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
DEEP_GREY = ("I", "I;16", "I;16B", "I;16L")  # 16 bits per pixel
RESIZE, CROP = 256, 224  # how the public ImageNet-C was made
QUALITY = 85  # of its JPEG files
SIZES = "Give `preprocessing: resize256`, which makes all of them 224 x 224, or a `size` of your own."


def files_below(root: Path, suffixes: tuple[str, ...] = PICTURES) -> Iterator[str]:
    """Yield relative paths with slashes; hidden files and folders are left out."""
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        here = "".join(f"{part}/" for part in Path(folder).relative_to(root).parts)
        for name in files:
            if os.path.splitext(name)[1].lower() in suffixes and not name.startswith("."):
                yield here + name


def read_picture(path: Path, *, upright: bool = False) -> Picture:
    """Read a picture of any mode as RGB; with `upright`, turned by its EXIF orientation."""
    with reading(path, "an image"), Image.open(path) as stored:
        picture = ImageOps.exif_transpose(stored) if upright else stored
        if picture.mode in DEEP_GREY:
            picture = Image.fromarray((np.asarray(picture) // 257).astype(np.uint8))
        return np.asarray((picture.convert("RGBA") if picture.mode == "P" else picture).convert("RGB"))


def picture_size(path: Path) -> tuple[int, int]:
    """Return height and width, from the file's header only."""
    with reading(path, "an image"), Image.open(path) as picture:
        return picture.height, picture.width


def resize_shorter(image: Picture, size: int) -> Picture:
    """Resize so that the shorter side has `size` pixels; bilinear with antialiasing."""
    height, width, _ = image.shape
    short = min(height, width)
    target = size * width // short, size * height // short
    return np.asarray(Image.fromarray(image).resize(target, Image.Resampling.BILINEAR))


def centre_crop(image: Picture, size: int) -> Picture:
    """Return the middle size x size pixels."""
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
    """How a picture gets its size: its shorter side is resized, then its middle is cropped; None skips a step."""

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
                f"It has {height} x {width} pixels, too few to crop {self.crop} x {self.crop}. Resize it first, with "
                "`preprocessing: resize256` or a `size`."
            )
        return centre_crop(image, self.crop)


CONVENTIONS = {"none": Fit(None, CROP), "resize256": Fit(RESIZE, CROP)}


@dataclass(frozen=True)
class Pictures:
    """Picture files below a folder, read and sized when they are needed."""

    root: Path
    names: Sequence[str]
    fit: Fit

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: NDArray[np.int64], /) -> Images:
        images = [self._read(self.names[row]) for row in rows]
        for row, image in zip(rows, images, strict=True):
            if image.shape != images[0].shape:
                sizes = f"{self.names[rows[0]]} {images[0].shape[:2]}, {self.names[row]} {image.shape[:2]}"
                raise InputError(f"The pictures in {self.root} differ in size: {sizes}. {SIZES}")
        return np.stack(images)

    def fingerprint(self) -> str:
        """Return a hash of order, names and lengths of the files, and of how they are sized."""
        return hashed(fingerprint(self.root, self.names), str(self.fit))

    def _read(self, name: str) -> Picture:
        image = read_picture(self.root / name)
        try:
            return self.fit(image)
        except CttaError as error:
            raise InputError(f"{self.root / name} cannot be used. {error}") from error
