"""Outlines, distances and histogram equalisation for the water of `spatter`, over whole batches (N, H, W).

They follow the definitions that OpenCV documents for Canny, distanceTransform (L2, 5 x 5 mask) and equalizeHist,
because the public corruption is made with those.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate, label

# Lengths of the three moves of the 5 x 5 chamfer mask: along an axis, along a diagonal, as a knight.
STRAIGHT, DIAGONAL, KNIGHT = 1.0, 1.4, 2.1969
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])


def canny(x: NDArray[np.uint8], low: float, high: float) -> NDArray[np.bool_]:
    """Outlines by Canny: Sobel gradient, thinned across its direction, weak pieces kept only next to strong ones."""
    across = correlate(x.astype(np.int32), SOBEL[None], mode="nearest")
    down = correlate(x.astype(np.int32), SOBEL.T[None], mode="nearest")
    size = np.abs(across) + np.abs(down)
    thin = _ridge(size, across, down)
    candidates = thin & (size > low)
    # Pieces join over corners, but never from one image to the next.
    joins = np.zeros((3, 3, 3), bool)
    joins[1] = True
    pieces, count = label(candidates, joins)
    strong = np.zeros(count + 1, bool)
    strong[pieces[candidates & (size > high)]] = True
    strong[0] = False
    return np.asarray(strong[pieces])


def _ridge(size: NDArray[np.int32], across: NDArray[np.int32], down: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Pixels whose gradient is largest along its own direction, of the four directions of the grid."""
    _, height, width = size.shape
    around = np.pad(size, ((0, 0), (1, 1), (1, 1)))

    def shifted(dy: int, dx: int) -> NDArray[np.int32]:
        return around[:, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    steep, flat = np.abs(down).astype(np.float64), np.abs(across).astype(np.float64)
    horizontal = steep < np.tan(np.pi / 8) * flat
    vertical = steep > np.tan(3 * np.pi / 8) * flat
    # On a plateau of two equal pixels one must win: the first, in reading order.
    along_x = (size > shifted(0, -1)) & (size >= shifted(0, 1))
    along_y = (size > shifted(-1, 0)) & (size >= shifted(1, 0))
    falling = (size > shifted(-1, -1)) & (size > shifted(1, 1))
    rising = (size > shifted(-1, 1)) & (size > shifted(1, -1))
    diagonal = np.where((across ^ down) < 0, rising, falling)
    return np.where(horizontal, along_x, np.where(vertical, along_y, diagonal))


def chamfer_distance(edges: NDArray[np.bool_], cap: float) -> NDArray[np.float32]:
    """Distance to the nearest edge pixel along chamfer moves, exact up to `cap`; `cap` or a little more beyond."""
    n, height, width = edges.shape
    around = np.full((n, height + 4, width + 4), np.float32(cap + 4))
    inner = around[:, 2:-2, 2:-2]
    inner[edges] = 0
    moves = [
        (dy, dx, {1: STRAIGHT, 2: DIAGONAL, 5: KNIGHT}[dy * dy + dx * dx])
        for dy in range(-2, 3)
        for dx in range(-2, 3)
        if dy * dy + dx * dx in (1, 2, 5)
    ]
    # Every move relaxes all pixels at once. Distances settle from the edges outwards.
    while True:
        before = inner.copy()
        for dy, dx, length in moves:
            shifted = around[:, 2 + dy : 2 + dy + height, 2 + dx : 2 + dx + width]
            np.minimum(inner, shifted + np.float32(length), out=inner)
        if np.array_equal(before, inner):
            return inner.copy()


def blur_box(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean over 3 x 3 pixels, borders mirrored about the edge pixel."""
    total = correlate(x.astype(np.float64), np.ones((1, 3, 3)), mode="mirror")
    return np.asarray(total / 9, dtype=np.float32)


def equalise(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Spread the grey levels of each image so that their cumulative histogram is a straight line."""
    n, height, width = x.shape
    pixels = height * width
    level = x.reshape(n, pixels).astype(np.intp) + 256 * np.arange(n)[:, None]
    histogram = np.bincount(level.ravel(), minlength=256 * n).reshape(n, 256)
    darkest = histogram[np.arange(n), (histogram > 0).argmax(axis=1)][:, None]
    above = np.maximum(np.cumsum(histogram, axis=1) - darkest, 0)
    table = np.rint(above.astype(np.float32) * (np.float32(255) / np.maximum(pixels - darkest, 1).astype(np.float32)))
    out = table.astype(np.uint8).ravel()[level].reshape(x.shape)
    # An image of a single level stays as it is.
    return np.where((darkest == pixels)[:, :, None], x, out)


def correlate_uint8(x: NDArray[np.uint8], kernel: NDArray[np.int_]) -> NDArray[np.uint8]:
    """Correlate with a 3 x 3 kernel of integers, clipped to 0..255, borders mirrored about the edge pixel."""
    total = correlate(x.astype(np.int32), kernel[None], mode="mirror")
    return np.clip(total, 0, 255).astype(np.uint8)
