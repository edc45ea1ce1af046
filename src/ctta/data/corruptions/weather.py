"""Weather: snow, frost, fog, and spatter, which is rain or mud on the lens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from ctta.data.corruptions.domain import Generators
from ctta.data.corruptions.edges import blur_box, canny, chamfer_distance, correlate_uint8, equalise
from ctta.data.corruptions.image_ops import normal, smear, truncate, zoom
from ctta.data.pictures import Images

RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def snow(
    x: Images,
    generators: Generators,
    mean: float,
    std: float,
    factor: float,
    threshold: float,
    radius: int,
    sigma: float,
    mix: float,
) -> Images:
    """Whiten the image, then add falling flakes and the same flakes turned by 180 degrees."""
    noise = np.float32(mean) + np.float32(std) * normal(generators, x.shape[1:3])
    layer = zoom(noise.transpose(1, 2, 0), factor).transpose(2, 0, 1)
    layer = np.where(layer < np.float32(threshold), np.float32(0), layer)
    flakes = np.floor(np.clip(layer, 0, 1) * 255)[..., None]
    angles = [generator.uniform(-135, -45) for generator in generators]
    flakes = np.rint(smear(flakes, radius, sigma, angles))
    clean = x.astype(np.float32)
    grey = 0.299 * clean[..., :1] + 0.587 * clean[..., 1:2] + 0.114 * clean[..., 2:]
    white = np.maximum(clean, 1.5 * grey + 127.5)
    return truncate(mix * clean + (1 - mix) * white + flakes + flakes[:, ::-1, ::-1])


def frost(
    x: Images, generators: Generators, weight: float, frost_weight: float, shrink: int, textures: Sequence[Images]
) -> Images:
    """Blend the image with a random piece of a frost texture."""
    _, height, width, _ = x.shape
    out = np.float32(weight) * x.astype(np.float32)
    for i, generator in enumerate(generators):
        texture = _shrunk(textures[int(generator.integers(len(textures)))], shrink, height, width)
        top = generator.integers(texture.shape[0] - height)
        left = generator.integers(texture.shape[1] - width)
        out[i] += np.float32(frost_weight) * texture[top : top + height, left : left + width]
    return truncate(out)


def _shrunk(texture: Images, shrink: int, height: int, width: int) -> Images:
    """Keep every `shrink`-th pixel; mirror the texture at its borders if the image is larger."""
    small = texture[shrink // 2 :: shrink, shrink // 2 :: shrink]
    missing = [max(0, side + 1 - have) for side, have in zip((height, width), small.shape, strict=False)]
    if any(missing):
        small = np.pad(small, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="symmetric")
    return small


def fog(x: Images, generators: Generators, strength: float, decay: float, smallest: int) -> Images:
    """Add a random plasma map and scale the sum back to the range of the image."""
    _, height, width, _ = x.shape
    side = max(smallest, 2 ** math.ceil(math.log2(max(height, width))))
    draws = np.stack([generator.random(side * side) for generator in generators])
    cloud = plasma(draws, side, decay)[:, :height, :width, None]
    top = x.max(axis=(1, 2, 3), keepdims=True).astype(np.float32)
    scale = top / (top + np.float32(255 * strength))
    return truncate(scale * (x + np.float32(255 * strength) * cloud.astype(np.float32)))


def plasma(draws: NDArray[np.float64], side: int, decay: float) -> NDArray[np.float64]:
    """Return maps in [0, 1] by the diamond-square method on a torus, from U(0, 1) draws (N, side * side).

    Each level sets the centres of the squares, then the middles of their edges, to the mean of four neighbours plus
    wibble * U(-wibble, wibble). The wibble starts at 100 and is divided by `decay` after each level.
    """
    n = len(draws)
    cloud = np.zeros((n, side, side))
    wibble, step, used = 100.0, side, 0

    def settle(total: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal used
        count = total[0].size
        draw = draws[:, used : used + count].reshape(total.shape)
        used += count
        return total / 4 + wibble * wibble * (2 * draw - 1)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, half::step] = settle(pairs + np.roll(pairs, -1, axis=2))
        centres = cloud[:, half::step, half::step]
        across = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        cloud[:, ::step, half::step] = settle(across)
        down = centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, ::step] = settle(down)
        step, wibble = half, wibble / decay
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= cloud.max(axis=(1, 2), keepdims=True)
    return cloud


def spatter(
    x: Images,
    generators: Generators,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: int,
) -> Images:
    """Splash water (`mud` is 0) or mud (`mud` is 1) on the lens."""
    noise = np.stack([generator.standard_normal(x.shape[1:3]) for generator in generators])
    layer = gaussian_filter(mean + std * noise, (0, sigma, sigma), mode="nearest")
    layer[layer < threshold] = 0
    clean = x.astype(np.float32)
    if mud:
        mask = (layer > threshold).astype(np.float32)
        mask = gaussian_filter(mask, (0, strength, strength), mode="nearest")
        mask[mask < 0.8] = 0
        mask = mask[..., None]
        return truncate(clean * (1 - mask) + np.array([63, 42, 20], np.float32) * mask)
    # In the public conversion to uint8, values above 1 wrap around. They occur at the borders, where the blur is weak.
    water = ((255 * layer).astype(np.int64) % 256).astype(np.uint8)
    light = (water.astype(np.float32) * droplets(water))[..., None]
    peak = light.max(axis=(1, 2), keepdims=True)
    light *= np.float32(strength) / np.where(peak > 0, peak, np.float32(1))
    return truncate(clean + light * np.array([175, 238, 238], np.float32))


def droplets(water: Images) -> Images:
    """Return the relief of water drops (N, H, W): bright where the distance to the outline grows down and right."""
    distance = np.minimum(chamfer_distance(canny(water, 50, 150), 20), np.float32(20))
    relief = correlate_uint8(equalise(blur_box(distance).astype(np.uint8)), RELIEF)
    drops: Images = np.rint(blur_box(relief.astype(np.float32))).astype(np.uint8)
    return drops
