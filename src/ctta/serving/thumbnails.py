"""Pictures in requests, and small ones for the page."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from ctta.base.errors import InputError
from ctta.data.pictures import Fit, Picture, read_picture, to_grey
from ctta.serving.messages import Floats
from ctta.serving.refusals import BAD, KIND, Refused

SIDE = 96  # pixels of a small picture
UPLOAD = Path("The picture")  # what errors call it


def small(picture: Picture) -> Picture:
    """The picture, at most so many pixels wide and high."""
    image = Image.fromarray(picture if picture.shape[2] == 3 else picture[..., 0]).convert("RGB")
    image.thumbnail((SIDE, SIDE))
    return np.array(image)


def thumbnail(picture: Picture) -> str:
    """A small picture as the address of its own content."""
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def read_pictures(contents: list[bytes], shape: tuple[int, ...], most_pixels: int) -> Floats:
    """Pictures as (N, 3, S, S) or (N, 1, S, S) in [0, 1]: the shorter side is resized, the middle cut out."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise Refused(KIND, "This model takes no pictures. Send tensors as JSON or binary data.")
    images = np.stack([_read(content, shape, most_pixels) for content in contents])
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32) / np.float32(255)


def _read(content: bytes, shape: tuple[int, ...], most_pixels: int) -> Picture:
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP", "BMP")) as opened:
            width, height = opened.size
        if width * height > most_pixels:
            raise Refused(BAD, f"The picture has {width} x {height} pixels; at most {most_pixels} are read.")
        picture = Fit(shape[1], shape[1])(read_picture(UPLOAD, upright=True, content=content))
    except Refused:
        raise
    except (InputError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Refused(BAD, "The picture cannot be read. Send a whole JPEG, PNG, WebP or BMP file.") from error
    return picture if shape[0] == 3 else to_grey(picture)
