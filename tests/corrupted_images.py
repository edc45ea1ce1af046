"""Pictures to corrupt, and how the tests of the image corruptions compare them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.ndimage import zoom as spline_zoom

from ctta.data.corruptions import PRESETS, SEVERITIES
from ctta.data.corruptions.constants import CONSTANTS


def pictures(count=3, height=32, width=32, seed=0):
    """Smooth colour pictures that use the whole range, with some black and some white."""
    noise = np.random.default_rng(seed).standard_normal((count, height, width, 3))
    x = gaussian_filter(noise, (0, 2, 2, 0)) * 500 + 128
    return np.clip(x, 0, 255).astype(np.uint8)


def constants(name, severity, preset):
    return CONSTANTS[preset][name][severity - 1]


def every(*names):
    """All severities of both presets."""
    cases = [(name, preset, severity) for name in names for preset in PRESETS for severity in SEVERITIES]
    return pytest.mark.parametrize(("name", "preset", "severity"), cases)


def assert_one_grey_level(ours, oracle):
    """`oracle` holds reals in [0, 1] or uint8."""
    if oracle.dtype != np.uint8:
        oracle = (np.clip(oracle, 0, 1) * 255).astype(np.uint8)
    assert np.abs(ours.astype(int) - oracle).max() <= 1


def clipped_zoom(image, factor):
    """Crop the centre and enlarge it with SciPy."""
    sides = image.shape[:2]
    kept = [int(np.ceil(side / factor)) for side in sides]
    y, x = [(side - keep) // 2 for side, keep in zip(sides, kept, strict=True)]
    large = spline_zoom(image[y : y + kept[0], x : x + kept[1]], (factor, factor, 1), order=1)
    y, x = [(have - side) // 2 for have, side in zip(large.shape, sides, strict=False)]
    return large[y : y + sides[0], x : x + sides[1]]


WATER = [(preset, severity) for preset in PRESETS for severity in (1, 2, 3)]


def water(preset, severity, count=6, height=48, width=40):
    """Layers as spatter has them before it looks for outlines."""
    mean, std, sigma, threshold, _, _ = constants("spatter", severity, preset)
    noise = np.random.default_rng(severity).normal(mean, std, (count, height, width))
    layer = gaussian_filter(noise, (0, sigma, sigma), mode="nearest")
    layer[layer < threshold] = 0
    return ((255 * layer).astype(np.int64) % 256).astype(np.uint8)
