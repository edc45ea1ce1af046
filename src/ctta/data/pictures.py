"""Picture files: read, resized, cropped, saved as JPEG."""

from __future__ import annotations

import io
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ctta.base.errors import CttaError, InputError
from ctta.base.fileio import fingerprint, hashed, reading, some
from ctta.base.limits import PIXELS

Picture: TypeAlias = NDArray[np.uint8]  # (H, W, 3)
Images: TypeAlias = NDArray[np.uint8]  # (N, H, W, 3)

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
DECODERS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # by content; others, such as EPS, run programs
DEEP_GREY = ("I;16", "I;16B", "I;16L")  # 16 bits per pixel
DEEP_FORMATS = ("PNG", "PPM")  # their mode I has 16 bits too
WHITE_IS_ZERO = (0x0106, 0)  # the tag of a TIFF's interpretation, and its value for grey that grows darker
ORIENTATION = 0x0112  # the tag of a picture's orientation
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,  # from here on, the picture lies on its side
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and bytes that are not UTF-8
RESIZE, CROP = 256, 224  # how the public ImageNet-C was made
QUALITY = 85  # of its JPEG files
SIZES = "Give `preprocessing: resize256`, which makes all of them 224 x 224, or a `size` of your own."


def files_below(root: Path, suffixes: tuple[str, ...] = PICTURES) -> tuple[list[str], str]:
    """Return relative paths with slashes, and a sentence on what was left out; hidden files and folders do not count.

    Every file and every folder is met once: links come after what they may lead to, and none leads upward.
    """
    found: list[str] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    top = os.path.realpath(root)
    folders, links, met = [("", top)] if root.is_dir() else [], deque[tuple[str, str]](), {top}

    def meet(name: str, path: str, *, is_folder: bool, is_file: bool) -> None:
        if os.path.basename(name).startswith("__") if is_folder else os.path.splitext(name)[1].lower() not in suffixes:
            return
        if UNPRINTABLE.search(name):
            left_out["with names that cannot be printed"].append(ascii(name)[1:-1])
        elif not is_folder and not is_file:
            left_out["that are no regular files"].append(name)
        elif path in met:
            left_out["that link to what is read elsewhere"].append(name)
        else:
            met.add(path)
            folders.append((f"{name}/", path)) if is_folder else found.append(name)

    while folders or links:
        if not folders:
            name, place = links.popleft()
            target = os.path.realpath(os.path.join(place, os.path.basename(name)))
            if f"{place}/".startswith(f"{target.rstrip('/')}/"):
                left_out["that link to a folder above them"].append(name)
            else:
                meet(name, target, is_folder=os.path.isdir(target), is_file=os.path.isfile(target))
            continue
        here, place = folders.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            left_out["that cannot be opened"].append(here or ".")
            continue
        for entry in entries:
            name = here + entry.name
            if entry.is_symlink() and not entry.name.startswith("."):
                links.append((name, place))
            elif not entry.name.startswith("."):
                meet(name, entry.path, is_folder=entry.is_dir(), is_file=entry.is_file())
    kinds = [f"{len(names)} {kind} ({some(names, 3)})" for kind, names in left_out.items()]
    return found, f"Left out in {root}: {'; '.join(kinds)}." if kinds else ""


def read_picture(path: Path, *, upright: bool = False, content: bytes | None = None) -> Picture:
    """Read a picture as RGB; with `upright`, turned by its EXIF orientation; `content` is a part of the file.

    Of several frames the first is read. Transparency is ignored. 16 bits per pixel become 8; whole numbers of 32 bits
    and floating point are refused, because their range is not known.
    """
    with _opened(path, content) as stored:
        deep = stored.mode in DEEP_GREY or (stored.mode == "I" and stored.format in DEEP_FORMATS)
        if stored.mode in ("I", "F") and not deep:
            raise InputError(
                "Its pixels are 32-bit numbers, of which nobody knows what is black and what is white. Save it with 8 "
                "or 16 bits per channel."
            )
        tag, white_is_zero = WHITE_IS_ZERO
        negative = deep and getattr(stored, "tag_v2", {}).get(tag) == white_is_zero
        turn = TURNS.get(_orientation(stored)) if upright else None
        picture = stored if turn is None else stored.transpose(turn)
        if deep:
            values = np.asarray(picture) // 257
            picture = Image.fromarray((255 - values if negative else values).astype(np.uint8))
        return np.asarray((picture.convert("RGBA") if picture.mode == "P" else picture).convert("RGB"))


def picture_size(path: Path, *, upright: bool = False) -> tuple[int, int]:
    """Return height and width, from the file's header only; with `upright`, after it was turned."""
    with _opened(path) as picture:
        lies = upright and 5 <= _orientation(picture) <= 8
        return (picture.width, picture.height) if lies else (picture.height, picture.width)


def _orientation(picture: Image.Image) -> int:
    """Return the orientation that stands before the pixels; to look behind them, Pillow would decode a PNG."""
    orientation = Image.Image.getexif(picture).get(ORIENTATION, 1)
    return orientation if isinstance(orientation, int) else 1


@contextmanager
def _opened(path: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """Open a picture whose number of pixels is within the limit; nothing is decoded yet."""
    with reading(path, "an image"):
        try:
            with Image.open(path if content is None else io.BytesIO(content), formats=DECODERS) as picture:
                _check_pixels(picture.height, picture.width)
                yield picture
        except Image.DecompressionBombError as error:
            raise InputError(f"It has more than {PIXELS} pixels. Make it smaller.") from error


def _check_pixels(height: int, width: int) -> None:
    if not 0 < height * width <= PIXELS:
        raise InputError(f"It has {height} x {width} pixels; between 1 and {PIXELS} in all are read.")


def resize_shorter(image: Picture, size: int) -> Picture:
    """Resize so that the shorter side has `size` pixels; bilinear with antialiasing."""
    height, width, _ = image.shape
    short = min(height, width)
    target = size * width // short, size * height // short
    _check_pixels(*target)
    return np.asarray(Image.fromarray(image).resize(target, Image.Resampling.BILINEAR))


def centre_crop(image: Picture, size: int) -> Picture:
    """Return the middle size x size pixels."""
    height, width, _ = image.shape
    top, left = round((height - size) / 2), round((width - size) / 2)
    return image[top : top + size, left : left + size]


def to_grey(image: Picture) -> Picture:
    """Return the luminance, (H, W, 1), as Pillow and torchvision compute it."""
    return np.asarray(Image.fromarray(image).convert("L"))[..., None]


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
    upright: bool = False  # turned by their EXIF orientation; public sets are read as they are stored

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
        return hashed(fingerprint(self.root, self.names), str(self.fit), *["upright"] * self.upright)

    def _read(self, name: str) -> Picture:
        image = read_picture(self.root / name, upright=self.upright)
        try:
            return self.fit(image)
        except CttaError as error:
            raise InputError(f"{self.root / name} cannot be used. {error}") from error
