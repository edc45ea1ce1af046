"""Warps of point clouds, against SciPy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator
from scipy.stats import binom

from ctta.data.corruptions.warps import (
    CONTROL,
    bernstein,
    inverse_multiquadric,
    multiquadric,
    radial_features,
    radial_weights,
)


@pytest.mark.parametrize(
    ("basis", "kernel"),
    [(multiquadric, "multiquadric"), (inverse_multiquadric, "inverse_multiquadric")],
)
def test_the_radial_warp_is_the_interpolant_of_scipy(basis, kernel):
    # sqrt(d^2 + 1/4) is half of sqrt(1 + (2 d)^2): epsilon 2.
    generator = np.random.default_rng(0)
    moves, x = generator.standard_normal((125, 3)), generator.uniform(-1.2, 1.2, (50, 3))
    oracle = RBFInterpolator(CONTROL, moves, kernel=kernel, epsilon=2, degree=1)(x)
    assert np.allclose(radial_features(x, basis) @ radial_weights(basis) @ moves, oracle, atol=1e-8)


@pytest.mark.parametrize("basis", [multiquadric, inverse_multiquadric])
def test_the_radial_warp_interpolates_and_keeps_affine_moves(basis):
    weights = radial_weights(basis)
    assert weights.shape == (129, 125)
    assert radial_weights(basis) is weights
    assert np.allclose(radial_features(CONTROL, basis) @ weights, np.eye(125), atol=1e-9)
    matrix, shift = np.array([[1, 2, 3], [0, -1, 1], [0.5, 0, 2]]), np.array([1, 2, -3])
    x = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    assert np.allclose(radial_features(x, basis) @ weights @ (CONTROL @ matrix + shift), x @ matrix + shift, atol=1e-9)


def test_the_bases_by_hand():
    corner = CONTROL[0]
    assert np.allclose(corner, -1)
    at = np.array([[-1, -1, -1], [-1, -1, 0], [1.0, 1, 1]])
    assert np.allclose(multiquadric(at)[:, 0], [0.5, np.sqrt(1.25), np.sqrt(12.25)])
    assert np.allclose(inverse_multiquadric(at)[:, 0], [2, 1 / np.sqrt(1.25), 1 / 3.5])


def test_bernstein_shares_are_binomial():
    x = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    shares = bernstein(x).reshape(20, 5, 5, 5)
    for i, j, k in ((0, 0, 0), (4, 2, 1), (3, 3, 0)):
        oracle = np.prod(binom.pmf([i, j, k], 4, (x + 1) / 2), axis=1)
        assert np.allclose(shares[:, i, j, k], oracle)


def test_bernstein_shares_sum_to_one_and_keep_linear_moves():
    x = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    assert np.allclose(bernstein(x).sum(axis=1), 1)
    assert np.allclose(bernstein(x) @ CONTROL, x)
    # At the centre, by hand: 6^3 / 2^12 of the middle control point. At a corner: all of its own. Outside: nothing.
    assert bernstein(np.zeros((1, 3)))[0, 62] == 216 / 4096
    assert np.array_equal(bernstein(CONTROL[[0, 124]]), np.eye(125)[[0, 124]])
    assert not bernstein(np.array([[0, 0, 1.001]])).any()
