"""Noise: gaussian_noise, shot_noise, impulse_noise, speckle_noise."""

from __future__ import annotations

import numpy as np

from ctta.data.corruptions.domain import Generators
from ctta.data.corruptions.image_ops import normal, truncate, uniform
from ctta.data.pictures import Images


def gaussian_noise(x: Images, generators: Generators, std: float) -> Images:
    """Add N(0, std) to each value."""
    return truncate(x + np.float32(255 * std) * normal(generators, x.shape[1:]))


def shot_noise(x: Images, generators: Generators, photons: float) -> Images:
    """Replace each value by a photon count: Poisson(x * photons) / photons."""
    rate = np.arange(256) * (photons / 255)
    counts = np.stack([generator.poisson(rate[image]) for generator, image in zip(generators, x, strict=True)])
    return truncate(np.float32(255 / photons) * counts.astype(np.float32))


def impulse_noise(x: Images, generators: Generators, amount: float) -> Images:
    """Set a fraction of the values to 0 or 255, half each (salt and pepper)."""
    draw = uniform(generators, x.shape[1:])
    out = x.copy()
    out[draw < np.float32(amount / 2)] = 0
    out[draw >= np.float32(1 - amount / 2)] = 255
    return out


def speckle_noise(x: Images, generators: Generators, std: float) -> Images:
    """Add noise in proportion to the value: x + x N(0, std)."""
    return truncate(x * (1 + np.float32(std) * normal(generators, x.shape[1:])))
