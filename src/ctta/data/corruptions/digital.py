"""Digital corruptions: brightness, saturate, contrast, elastic_transform, pixelate, jpeg_compression."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter1d

from ctta.data.corruptions.domain import Generators
from ctta.data.corruptions.image_ops import Floats, truncate, uniform
from ctta.data.pictures import Images, through_jpeg


def brightness(x: Images, generators: Generators, shift: float) -> Images:
    """Add to V in HSV. Hue and saturation do not change, so the channels keep their ratios."""
    clean = x.astype(np.float32)
    value = x.max(axis=3, keepdims=True).astype(np.float32)
    brighter = np.minimum(value + np.float32(255 * shift), 255)
    # Black has no saturation: it turns grey.
    return truncate(np.where(value > 0, clean * (brighter / np.maximum(value, 1)), brighter))


def saturate(x: Images, generators: Generators, scale: float, shift: float) -> Images:
    """Scale and shift S in HSV. Hue and value stay, so the distances of the channels to V keep their ratios."""
    value = x.max(axis=3, keepdims=True).astype(np.float32)
    distance = value - x  # 0 for the strongest channel, V S for the weakest
    spread = distance.max(axis=3, keepdims=True)
    saturation = np.clip(np.float32(scale) * spread / np.maximum(value, 1) + np.float32(shift), 0, 1)
    # Grey has hue 0 by convention: it turns red.
    share = np.where(spread > 0, distance / np.maximum(spread, 1), np.array([0, 1, 1], np.float32))
    return truncate(value - value * saturation * share)


def contrast(x: Images, generators: Generators, scale: float) -> Images:
    """Pull each channel towards its mean over the image."""
    _, height, width, _ = x.shape
    mean = x.sum(axis=(1, 2), keepdims=True, dtype=np.int64) / (height * width)
    return truncate(np.float32(scale) * x + ((1 - scale) * mean).astype(np.float32))


def elastic_transform(
    x: Images, generators: Generators, alpha: float, sigma: float, affine: float, unit: float
) -> Images:
    """Apply a random affine map, then a random smooth displacement of every pixel."""
    n, height, width, _ = x.shape
    side = min(height, width)
    unit *= side
    draws = 2 * uniform(generators, (6 + 2 * height * width,)).astype(np.float64) - 1
    moves = affine * unit * draws[:, :6].reshape(n, 3, 2)  # of three points, as x and y
    centre, arm = np.array([width // 2, height // 2]), side // 3
    anchors = centre + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    across, down = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
    matrix = _inverse_affine(anchors, anchors + moves)[..., None, None]  # (N, 2, 3, 1, 1)
    columns = matrix[:, 0, 0] * across + matrix[:, 0, 1] * down + matrix[:, 0, 2]
    rows = matrix[:, 1, 0] * across + matrix[:, 1, 1] * down + matrix[:, 1, 2]
    out = _sample(x.astype(np.float32), rows, columns, "reflect_101")
    if alpha > 0:
        fields = draws[:, 6:].reshape(n, 2, height, width)
        fields = alpha * unit * (_smoothing(height, sigma * unit) @ fields @ _smoothing(width, sigma * unit).T)
        out = _sample(out, down + fields[:, 1], across + fields[:, 0], "reflect")
    return truncate(out)


def _inverse_affine(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the maps (N, 2, 3) that take three target points (N, 3, 2) back to the three source points (3, 2)."""
    u, v = target[:, 1] - target[:, 0], target[:, 2] - target[:, 0]
    a, b = source[1] - source[0], source[2] - source[0]
    # Solved by Cramer's rule, element by element: LAPACK may round differently in another batch.
    area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    by_x = (a * v[:, 1:] - b * u[:, 1:]) / area[:, None]  # (N, 2)
    by_y = (b * u[:, :1] - a * v[:, :1]) / area[:, None]
    rest = source[0] - by_x * target[:, 0, :1] - by_y * target[:, 0, 1:]
    return np.stack([by_x, by_y, rest], axis=2)


@lru_cache(maxsize=16)
def _smoothing(side: int, sigma: float) -> NDArray[np.float64]:
    """Return a Gaussian filter as a matrix; for filters as wide as the image, a product is faster than taps."""
    return np.asarray(gaussian_filter1d(np.eye(side), sigma, axis=0, mode="reflect", truncate=3.0))


def _sample(x: Floats, rows: NDArray[np.float64], columns: NDArray[np.float64], border: str) -> Floats:
    """Read images (N, H, W, C) at real-valued positions (N, H, W) by linear interpolation."""
    n, height, width, channels = x.shape
    top, left = np.floor(rows).astype(np.int32), np.floor(columns).astype(np.int32)
    down, right = (rows - top).astype(np.float32)[..., None], (columns - left).astype(np.float32)[..., None]
    start = (np.arange(n, dtype=np.int32) * (height * width))[:, None, None]
    row = [start + width * fold(top + i, height, border) for i in (0, 1)]
    column = [fold(left + i, width, border) for i in (0, 1)]
    flat = x.reshape(-1, channels)
    upper, lower = (
        _between(flat.take(start_of_row + column[0], 0), flat.take(start_of_row + column[1], 0), right)
        for start_of_row in row
    )
    return _between(upper, lower, down)


def _between(near: Floats, far: Floats, share: Floats) -> Floats:
    """Interpolate linearly, in the memory of the arguments."""
    far -= near
    far *= share
    far += near
    return far


def fold(index: NDArray[np.int32], side: int, border: str) -> NDArray[np.int32]:
    """Mirror indices into 0..side-1: about the edge pixel ("reflect_101") or about its outer edge ("reflect")."""
    low, high = int(index.min()), int(index.max())
    whole = np.arange(low, high + 1, dtype=np.int32)
    # Division is slow: it is done once per index that occurs, then looked up.
    if border == "reflect_101":
        whole = np.abs((whole + side - 1) % (2 * side - 2) - (side - 1))
    else:
        whole = np.abs((2 * whole + 2 * side + 1) % (4 * side) - 2 * side) // 2
    return whole.take(index - low)


def pixelate(x: Images, generators: Generators, scale: float) -> Images:
    """Shrink by averaging boxes, then enlarge again."""
    _, height, width, _ = x.shape
    small = (int(width * scale), int(height * scale))
    out = np.empty_like(x)
    for i, image in enumerate(x):
        shrunk = Image.fromarray(image).resize(small, Image.Resampling.BOX)
        out[i] = np.asarray(shrunk.resize((width, height), Image.Resampling.BOX))
    return out


def jpeg_compression(x: Images, generators: Generators, quality: int) -> Images:
    """Store as JPEG and read back."""
    return np.stack([through_jpeg(image, quality) for image in x])
