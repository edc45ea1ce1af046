"""Operations on batches of images that several corruptions share: random draws, filters, zoom, storing as uint8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from ctta.data.corruptions.domain import Generators
from ctta.data.pictures import Images

Floats: TypeAlias = NDArray[np.float32]

# Truncation must not turn a rounding error of 1e-5 into a grey level: 99.99999 is stored as 100.
NUDGE = np.float32(2**-13)


def truncate(values: Floats) -> Images:
    """Clip to 0..255, in place, and store as uint8 by truncation."""
    values += NUDGE
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)


def normal(generators: Generators, shape: tuple[int, ...]) -> Floats:
    """Draw N(0, 1) values (N, *shape), each image from its own generator."""
    return np.stack([generator.standard_normal(shape, np.float32) for generator in generators])


def uniform(generators: Generators, shape: tuple[int, ...]) -> Floats:
    """Draw U(0, 1) values (N, *shape), each image from its own generator."""
    return np.stack([generator.random(shape, np.float32) for generator in generators])


def smooth(x: Floats, sigma: float) -> Floats:
    """Apply a Gaussian filter to images (N, H, W, C), edges replicated."""
    return np.asarray(gaussian_filter(x, (0, sigma, sigma, 0), mode="nearest", truncate=4.0))


def smear(x: Floats, radius: int, sigma: float, angles: Sequence[float]) -> Floats:
    """Average copies of each image (N, H, W, C) along a line, edges replicated.

    Copy i is shifted by i pixels and has the weight exp(-i^2 / 2 sigma^2): motion has a sharp front and a tail.
    """
    n, height, width, _ = x.shape
    line = np.arange(2 * radius + 1)
    weights = np.exp(-(line**2) / (2 * sigma**2))
    reach = int(np.count_nonzero(weights > 1e-7))
    weights = (weights / weights.sum()).astype(np.float32)
    padded = np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    places = np.moveaxis(sliding_window_view(padded, (height, width), (1, 2)), 3, 5)  # (N, top, left, H, W, C)
    direction = np.array([(math.sin(math.radians(angle)), math.cos(math.radians(angle))) for angle in angles])
    image = np.arange(n)
    out = np.zeros_like(x)
    for i in range(reach):
        top, left = reach + np.ceil(i * direction.T - 0.5).astype(np.intp)
        copy = places[image, top, left]
        copy *= weights[i]
        out += copy
    return out


def zoom(x: Floats, factor: float) -> Floats:
    """Zoom into the centre of (H, W, values) by linear interpolation."""
    for axis in (0, 1):
        low, high, share = _zoom_taps(x.shape[axis], factor)
        near, far = x.take(low, axis), x.take(high, axis)
        far -= near
        far *= share if axis == 1 else share[:, None]
        near += far
        x = near
    return x


@lru_cache(maxsize=256)
def _zoom_taps(side: int, factor: float) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return, per position on the zoomed axis, its two neighbours and the distance to the first."""
    kept = math.ceil(side / factor)
    enlarged = round(kept * factor)
    place = np.arange((enlarged - side) // 2, (enlarged - side) // 2 + side) * ((kept - 1) / max(enlarged - 1, 1))
    low = np.minimum(place.astype(np.intp), kept - 1)
    start = (side - kept) // 2
    return start + low, start + np.minimum(low + 1, kept - 1), (place - low).astype(np.float32)[:, None]
