"""Noise: amounts and distributions, against scikit-image and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.util import random_noise

from ctta.data.corruptions import corrupt


def test_impulse_noise_has_the_share_of_skimage():
    x = np.full((60, 32, 32, 3), 100, np.uint8)
    y = corrupt(x, "impulse_noise", 5)
    oracle = random_noise(x / 255, mode="s&p", amount=0.07, rng=0)
    for level in (0, 255):
        assert (y == level).mean() == pytest.approx((oracle * 255 == level).mean(), rel=0.05)
        assert (y == level).mean() == pytest.approx(0.035, rel=0.05)


def test_shot_noise_is_poisson():
    x = np.full((60, 32, 32, 3), 102, np.uint8)
    y = corrupt(x, "shot_noise", 5) / 255 * 50
    assert y.mean() == pytest.approx(20, rel=0.01)
    assert y.var() == pytest.approx(20, rel=0.03)


def test_noise_grows_with_the_value_for_speckle_only():
    dark, bright = np.full((20, 32, 32, 3), 40, np.uint8), np.full((20, 32, 32, 3), 120, np.uint8)
    spread = {n: [corrupt(x, n, 5).std() for x in (dark, bright)] for n in ("gaussian_noise", "speckle_noise")}
    assert spread["gaussian_noise"][1] == pytest.approx(25.5, rel=0.05)
    assert spread["speckle_noise"][1] / spread["speckle_noise"][0] == pytest.approx(3, rel=0.02)
