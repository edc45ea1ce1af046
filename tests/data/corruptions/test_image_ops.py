"""Zoom and motion, against SciPy and OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from corrupted_images import clipped_zoom, constants, every, pictures
from ctta.data.corruptions.image_ops import smear, zoom


@pytest.mark.parametrize("factor", [1, 1.25, 1.75, 2, 2.25, 2.5, 3, 4, 4.5])
def test_the_zoom_of_snow_is_that_of_scipy(factor):
    layer = np.random.default_rng(0).random((33, 47, 3)).astype(np.float32)
    assert np.allclose(zoom(layer, factor), clipped_zoom(layer, factor), atol=1e-5)


@every("motion_blur")
def test_motion_is_a_sum_of_shifted_copies(name, preset, severity):
    x = pictures(4, 64, 56).astype(np.float32)
    radius, sigma = constants(name, severity, preset)
    angles = [-40.0, 0.0, 17.5, 45.0]
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    oracle = np.zeros_like(x)
    for i, weight in enumerate(weights / weights.sum()):
        for n, angle in enumerate(np.deg2rad(angles)):
            dy, dx = -np.ceil(i * np.sin(angle) - 0.5), -np.ceil(i * np.cos(angle) - 0.5)
            shift = np.array([[1, 0, dx], [0, 1, dy]])
            oracle[n] += weight * cv2.warpAffine(
                x[n], shift, (56, 64), flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE
            )
    assert np.abs(smear(x, radius, sigma, angles) - oracle).max() < 0.01


def test_motion_has_a_sharp_front_and_a_tail():
    x = np.zeros((1, 41, 41, 1), np.float32)
    x[0, 20, 20] = 1
    trace = smear(x, 6, 2, [0.0])[0, :, :, 0]
    assert trace[20, 20] == trace.max()
    assert np.count_nonzero(trace) == np.count_nonzero(trace[20, 8:21])  # all on one side, on one row
    assert trace.sum() == pytest.approx(1, abs=1e-6)
