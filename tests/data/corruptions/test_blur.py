"""Blur, against scikit-image, OpenCV, SciPy and plain loops, to one grey level."""

from __future__ import annotations

import cv2
import numpy as np
from skimage.filters import gaussian

from corrupted_images import assert_one_grey_level, clipped_zoom, constants, every, pictures
from ctta.data.corruptions import corrupt
from ctta.data.corruptions.blur import glass_blur


@every("gaussian_blur")
def test_gaussian_blur_is_that_of_skimage(name, preset, severity):
    x = pictures(2, 64, 48)
    (sigma,) = constants(name, severity, preset)
    oracle = np.stack([gaussian(image / 255, sigma=sigma, channel_axis=-1) for image in x])
    assert_one_grey_level(corrupt(x, name, severity, preset), oracle)


@every("defocus_blur")
def test_defocus_blur_is_that_of_opencv(name, preset, severity):
    x = pictures(2, 64, 48)
    radius, alias = constants(name, severity, preset)
    reach = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    kernel = (reach[:, None] ** 2 + reach**2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(kernel / kernel.sum(), (3, 3) if radius <= 8 else (5, 5), sigmaX=alias)
    oracle = np.stack([cv2.filter2D((image / 255).astype(np.float32), -1, kernel) for image in x])
    assert_one_grey_level(corrupt(x, name, severity, preset), oracle)


@every("zoom_blur")
def test_zoom_blur_is_that_of_scipy(name, preset, severity):
    x = pictures(2, 32, 44)
    zooms, step = constants(name, severity, preset)
    factors = 1 + step * np.arange(zooms)
    oracle = [(i + sum(clipped_zoom(i, f) for f in factors)) / (zooms + 1) for i in x / 255]
    assert_one_grey_level(corrupt(x, name, severity, preset), np.stack(oracle))


@every("glass_blur")
def test_glass_blur_is_the_sequential_loop(name, preset, severity):
    x = pictures(2, 28, 31)
    sigma, delta, rounds = constants(name, severity, preset)
    shape = (rounds, 28 - 2 * delta, 31 - 2 * delta, 2)
    draws = [np.random.default_rng(n).integers(-delta, delta, shape, dtype=np.int8) for n in range(2)]
    oracle = []
    for image, draw in zip(x, draws, strict=True):
        pixels = (gaussian(image / 255, sigma=sigma, channel_axis=-1) * 255 + 1e-6).astype(np.uint8)
        for step in range(rounds):
            for row in range(28 - delta, delta, -1):
                for column in range(31 - delta, delta, -1):
                    dy, dx = draw[step, row - delta - 1, column - delta - 1]
                    pixels[row, column] = pixels[row + dy, column + dx]
        oracle.append(gaussian(pixels / 255, sigma=sigma, channel_axis=-1))
    ours = glass_blur(x, [np.random.default_rng(n) for n in range(2)], sigma, delta, rounds)
    assert_one_grey_level(ours, np.stack(oracle))
