"""Weather: the steps of spatter, against OpenCV; fog by hand; frost that covers the image."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from corrupted_images import WATER, assert_one_grey_level, water
from ctta.data.corruptions import corrupt
from ctta.data.corruptions.weather import RELIEF, droplets, plasma


@pytest.mark.parametrize(("preset", "severity"), WATER)
def test_drops_are_those_of_opencv(preset, severity):
    x = water(preset, severity)
    oracle = []
    for layer in x:
        distance = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
        distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
        oracle.append(cv2.blur(cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, RELIEF), (3, 3)))
    assert_one_grey_level(droplets(x), np.stack(oracle))


@pytest.mark.parametrize("side", [32, 64])
def test_plasma_is_the_mean_of_four_neighbours_without_wibble(side):
    draws = np.full((2, side * side), 0.5)
    draws[:, 0] = [1.0, 0.0]  # only the first centre is moved, up and down
    cloud = plasma(draws, side, 2.0)
    assert cloud.min() == 0
    assert cloud.max() == 1
    assert np.allclose(cloud[0], 1 - cloud[1])
    half = side // 2
    assert cloud[0, half, half] == 1
    assert cloud[0, 0, half] == cloud[0, half, 0] == pytest.approx(0.5)


def test_the_map_of_fog_covers_large_images():
    y = corrupt(np.zeros((1, 40, 300, 3), np.uint8) + np.uint8(100), "fog", 5)
    assert y[0].std(axis=(0, 1)).min() > 1
    assert not np.array_equal(y[0, :, :32], y[0, :, 256:288])


def test_frost_covers_images_larger_than_its_texture():
    y = corrupt(np.zeros((1, 150, 700, 3), np.uint8), "frost", 5)
    assert y.min(axis=(1, 2, 3)) > 0
