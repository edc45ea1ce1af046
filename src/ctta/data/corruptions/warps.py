"""Warps of point clouds that are linear in the moves of 5 x 5 x 5 control points: radial basis functions, free-form.

The matrices here act on the moves of the control points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = NDArray[np.float64]  # (P, 3)
Basis: TypeAlias = Callable[[Points], NDArray[np.float64]]

LATTICE = np.linspace(-1, 1, 5)
CONTROL = np.stack(np.meshgrid(LATTICE, LATTICE, LATTICE, indexing="ij"), axis=-1).reshape(-1, 3)  # (125, 3)


def multiquadric(x: Points) -> NDArray[np.float64]:
    """Return sqrt(d^2 + 1/4), for the distance d of each point to each control point: (P, 125)."""
    axes = np.square(x[:, :, None] - LATTICE)  # (P, 3, 5)
    squares = axes[:, 0, :, None, None] + axes[:, 1, None, :, None] + (axes[:, 2] + 0.25)[:, None, None]
    return np.sqrt(squares, out=squares).reshape(len(x), -1)


def inverse_multiquadric(x: Points) -> NDArray[np.float64]:
    """Return 1 / sqrt(d^2 + 1/4), for the distance d of each point to each control point: (P, 125)."""
    return np.reciprocal(multiquadric(x))


def radial_features(x: Points, basis: Basis) -> NDArray[np.float64]:
    """Return the basis and the affine terms: (P, 129)."""
    return np.concatenate([basis(x), np.ones((len(x), 1)), x], axis=1)


@lru_cache(maxsize=2)
def radial_weights(basis: Basis) -> NDArray[np.float64]:
    """Return the matrix (129, 125) from the moves of the control points to the weights of the features.

    The warp moves each control point as given, and the weights of the basis are orthogonal to every affine function.
    """
    count = len(CONTROL)
    features = radial_features(CONTROL, basis)
    affine = features[:, count:]
    system = np.block([[features], [affine.T, np.zeros((4, 4))]])
    return np.linalg.inv(system)[:, :count]


def bernstein(x: Points) -> NDArray[np.float64]:
    """Return the weight of the move of each control point for each point: (P, 125); zero outside the cube."""
    t = ((x + 1) / 2)[:, :, None]
    degree = np.arange(5)
    axes = np.array([1, 4, 6, 4, 1]) * t**degree * (1 - t) ** (4 - degree)  # (P, 3, 5)
    axes[(np.abs(x) > 1).any(axis=1)] = 0
    return (axes[:, 0, :, None, None] * axes[:, 1, None, :, None] * axes[:, 2, None, None]).reshape(len(x), -1)
