"""Digital corruptions, against scikit-image, Pillow, OpenCV and SciPy."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import map_coordinates
from skimage.color import hsv2rgb, rgb2hsv
from skimage.filters import gaussian

from corrupted_images import assert_one_grey_level, constants, every, pictures
from ctta.data.corruptions import corrupt
from ctta.data.corruptions.digital import elastic_transform, fold


@every("brightness", "saturate")
def test_hsv_is_that_of_skimage(name, preset, severity):
    x = pictures(3, 48, 48)
    x[0, :8], x[0, 8:16] = 0, 90  # black and grey have no hue
    hsv = rgb2hsv(x / 255)
    if name == "brightness":
        hsv[..., 2] = np.clip(hsv[..., 2] + constants(name, severity, preset)[0], 0, 1)
    else:
        scale, shift = constants(name, severity, preset)
        hsv[..., 1] = np.clip(hsv[..., 1] * scale + shift, 0, 1)
    assert_one_grey_level(corrupt(x, name, severity, preset), hsv2rgb(hsv))


@every("contrast")
def test_contrast_pulls_towards_the_mean_of_each_channel(name, preset, severity):
    x = pictures(2)
    (scale,) = constants(name, severity, preset)
    mean = (x / 255).mean(axis=(1, 2), keepdims=True)
    assert_one_grey_level(corrupt(x, name, severity, preset), (x / 255 - mean) * scale + mean)


@every("pixelate", "jpeg_compression")
def test_pixelate_and_jpeg_are_those_of_pillow(name, preset, severity):
    x = pictures(2, 40, 56)
    (constant,) = constants(name, severity, preset)
    oracle = []
    for image in map(Image.fromarray, x):
        if name == "pixelate":
            small = image.resize((int(56 * constant), int(40 * constant)), Image.Resampling.BOX)
            oracle.append(np.asarray(small.resize((56, 40), Image.Resampling.BOX)))
        else:
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=constant)
            oracle.append(np.asarray(Image.open(buffer)))
    assert np.array_equal(corrupt(x, name, severity, preset), np.stack(oracle))


@every("elastic_transform")
def test_elastic_transform_is_that_of_opencv_and_scipy(name, preset, severity):
    x = pictures(2, 64, 64)
    alpha, sigma, affine, unit = constants(name, severity, preset)
    unit *= 64
    ours = elastic_transform(x, [np.random.default_rng(n) for n in range(2)], alpha, sigma, affine, unit / 64)
    for n, image in enumerate(x):
        draws = 2 * np.random.default_rng(n).random(6 + 2 * 64 * 64, dtype=np.float32) - 1
        source = np.float32([[53, 53], [53, 11], [11, 11]])
        target = source + np.float32(affine * unit) * draws[:6].reshape(3, 2)
        matrix = cv2.getAffineTransform(source, target)
        # OpenCV rounds places to 1/32 of a pixel, so it sees a finer image here.
        inverse = cv2.invertAffineTransform(matrix)
        rows, columns = np.mgrid[:64, :64]
        xs = (inverse[0, 0] * columns + inverse[0, 1] * rows + inverse[0, 2]).astype(np.float32)
        ys = (inverse[1, 0] * columns + inverse[1, 1] * rows + inverse[1, 2]).astype(np.float32)
        moved = np.stack([map_coordinates(image[..., c] / 255, [ys, xs], order=1, mode="mirror") for c in range(3)])
        coarse = cv2.warpAffine(image.astype(np.float32) / 255, matrix, (64, 64), borderMode=cv2.BORDER_REFLECT_101)
        assert np.abs(coarse.transpose(2, 0, 1) - moved).mean() < 0.003
        if alpha:
            fields = draws[6:].reshape(2, 64, 64).astype(np.float64)
            dx, dy = [gaussian(f, sigma * unit, mode="reflect", truncate=3) * alpha * unit for f in fields]
            places = [rows + dy, columns + dx]
            moved = np.stack([map_coordinates(c, places, order=1, mode="reflect") for c in moved])
        assert_one_grey_level(ours[n], moved.transpose(1, 2, 0))


@pytest.mark.parametrize("side", [5, 28])
def test_indices_fold_as_numpy_pads(side):
    index = np.arange(-70, 99, dtype=np.int32)
    for border, mode in (("reflect_101", "reflect"), ("reflect", "symmetric")):
        assert np.array_equal(fold(index, side, border), np.pad(np.arange(side), (70, 99 - side), mode=mode))
