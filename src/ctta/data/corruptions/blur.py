"""Blur: defocus_blur, glass_blur, motion_blur, zoom_blur, gaussian_blur."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from ctta.data.corruptions.domain import Generators
from ctta.data.corruptions.image_ops import smear, smooth, truncate, zoom
from ctta.data.pictures import Images

MOST_TAPS = 60  # a kernel with more taps is faster by Fourier transform


def gaussian_blur(x: Images, generators: Generators, sigma: float) -> Images:
    """Gaussian blur of each channel, edges replicated."""
    return truncate(smooth(x.astype(np.float32), sigma))


def defocus_blur(x: Images, generators: Generators, radius: float, alias: float) -> Images:
    """Convolve with an antialiased disk, borders mirrored about the edge pixel."""
    kernel = disk(radius, alias)  # symmetric: convolution and correlation agree
    reach = len(kernel) // 2
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect").astype(np.float32)
    out = np.zeros(x.shape, np.float32)
    taps = np.argwhere(kernel > 0)
    if len(taps) <= MOST_TAPS:
        for top, left in taps.tolist():
            out += np.float32(kernel[top, left]) * padded[:, top : top + height, left : left + width]
        return truncate(out)
    shape = [fft.next_fast_len(side + 2 * reach, real=True) for side in (height, width)]
    response = fft.rfft2(kernel, shape)
    planes = padded.transpose(0, 3, 1, 2).astype(np.float64)
    for i, image in enumerate(planes):  # one transform per image, so that its rounding does not depend on the batch
        full = fft.irfft2(fft.rfft2(image, shape) * response, shape)
        out[i] = full[:, 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width].transpose(1, 2, 0)
    return truncate(out)


@lru_cache(maxsize=64)
def disk(radius: float, alias: float) -> NDArray[np.float64]:
    """Return the kernel of defocus: a disk of sum 1, smoothed by a small Gaussian, without empty margins."""
    reach, smoothing = (8, 1) if radius <= 8 else (int(radius), 2)
    offset = np.arange(-reach, reach + 1)
    kernel = (offset[:, None] ** 2 + offset**2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    taps = np.exp(-(np.arange(-smoothing, smoothing + 1) ** 2) / (2 * alias**2))
    taps /= taps.sum()
    padded = np.pad(kernel, smoothing, mode="reflect")
    side = len(kernel)
    rows = sum(tap * padded[i : i + side] for i, tap in enumerate(taps))
    kernel = sum(tap * rows[:, i : i + side] for i, tap in enumerate(taps))
    kernel = np.where(kernel > 1e-9, kernel, 0)
    used = np.flatnonzero(kernel.max(axis=0))
    return np.ascontiguousarray(kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1])


def glass_blur(x: Images, generators: Generators, sigma: float, delta: int, rounds: int) -> Images:
    """Blur, replace pixels by random neighbours, blur again.

    The public loop runs from the last pixel to the first and overwrites each with the pixel at a random offset. If that
    neighbour lies later in the image, it has been overwritten already and shows another pixel. So a round is a map from
    pixels to the pixels they show, which is found by following these chains instead of looping over pixels.
    """
    n, height, width, _ = x.shape
    blurred = truncate(smooth(x.astype(np.float32), sigma))
    rows = np.arange(delta + 1, height - delta + 1)
    columns = np.arange(delta + 1, width - delta + 1)
    draws = np.stack(
        [g.integers(-delta, delta, (rounds, len(rows), len(columns), 2), dtype=np.int8) for g in generators]
    ).astype(np.int32)
    place = np.arange(n * height * width, dtype=np.int32)
    shown = place
    for step in range(rounds):
        taken = place.reshape(n, height, width).copy()
        taken[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] += draws[:, step, ..., 0] * width
        taken[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] += draws[:, step, ..., 1]
        shown = shown[_follow(taken.ravel(), place)]
    moved = blurred.reshape(-1, 3)[shown].reshape(x.shape)
    return truncate(smooth(moved.astype(np.float32), sigma))


def _follow(taken: NDArray[np.int32], place: NDArray[np.int32]) -> NDArray[np.int32]:
    """Follow chains of pixels that were copied from an overwritten pixel. Each pass doubles the length followed."""
    unresolved = taken > place
    pending = np.flatnonzero(unresolved)
    while len(pending):
        target = taken[pending]
        still = unresolved[target]
        taken[pending] = taken[target]
        unresolved[pending] = still
        pending = pending[still]
    return taken


def motion_blur(x: Images, generators: Generators, radius: int, sigma: float) -> Images:
    """Smear along a line in a random direction within 45 degrees of the horizontal."""
    angles = [generator.uniform(-45, 45) for generator in generators]
    return truncate(smear(x.astype(np.float32), radius, sigma, angles))


def zoom_blur(x: Images, generators: Generators, zooms: int, step: float) -> Images:
    """Average the image and its zooms into the centre."""
    n, height, width, _ = x.shape
    # Rows and columns come first, so that long runs of values are moved in memory instead of single pixels.
    clean = np.ascontiguousarray(x.transpose(1, 2, 0, 3)).reshape(height, width, n * 3).astype(np.float32)
    total = clean.copy()
    for i in range(zooms):
        total += zoom(clean, 1 + i * step)
    total /= zooms + 1
    return truncate(total.reshape(height, width, n, 3).transpose(2, 0, 1, 3))
