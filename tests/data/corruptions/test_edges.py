"""Outlines, distances and filters, against OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from corrupted_images import WATER, pictures, water
from ctta.data.corruptions.edges import blur_box, canny, chamfer_distance, correlate_uint8, equalise
from ctta.data.corruptions.weather import RELIEF


@pytest.mark.parametrize(("preset", "severity"), WATER)
def test_outlines_are_those_of_opencv(preset, severity):
    x = water(preset, severity)
    oracle = np.stack([cv2.Canny(layer, 50, 150) for layer in x]) > 0
    assert oracle.any()
    assert np.array_equal(canny(x, 50, 150), oracle)


def test_outlines_of_smooth_pictures_are_those_of_opencv():
    x = pictures(6, 64, 64)[..., 0]
    assert np.array_equal(canny(x, 50, 150), np.stack([cv2.Canny(i, 50, 150) for i in np.ascontiguousarray(x)]) > 0)


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.2])
def test_distances_are_those_of_opencv(share):
    edges = np.random.default_rng(0).random((5, 60, 44)) < share
    edges[:, 30, 20] = True
    free = np.where(edges, 0, 255).astype(np.uint8)
    oracle = np.stack([np.minimum(cv2.distanceTransform(i, cv2.DIST_L2, 5), 20) for i in free])
    assert np.allclose(np.minimum(chamfer_distance(edges, 20), 20), oracle, atol=1e-4)


def test_an_image_without_outlines_is_far_from_them():
    assert chamfer_distance(np.zeros((1, 30, 30), bool), 20).min() >= 20


def test_equalisation_is_that_of_opencv():
    x = np.random.default_rng(0).integers(3, 21, (5, 30, 40)).astype(np.uint8)
    x[4] = 20  # a single level stays
    assert np.array_equal(equalise(x), np.stack([cv2.equalizeHist(i) for i in x]))


def test_small_filters_are_those_of_opencv():
    x = np.random.default_rng(0).integers(0, 256, (3, 30, 40)).astype(np.uint8)
    relief = np.stack([cv2.filter2D(i, cv2.CV_8U, RELIEF) for i in x])
    assert np.array_equal(correlate_uint8(x, RELIEF), relief)
    box = np.stack([cv2.blur(i.astype(np.float32), (3, 3)) for i in x])
    assert np.allclose(blur_box(x.astype(np.float32)), box, atol=1e-4)
