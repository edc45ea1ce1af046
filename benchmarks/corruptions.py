"""Speedup over a plain loop: the fifteen corruptions at severity 5 on 10,000 CIFAR-size images.

    python -m benchmarks.corruptions

The plain loop does the same computation with the same draws, one image at a time. It runs on a few images, interleaved
with ours on all of them, and its time is scaled to the same number. Before the timing, both must agree to one grey
level on all but one value in a thousand.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import correlate, gaussian_filter, map_coordinates
from scipy.ndimage import zoom as spline_zoom

from benchmarks.timing import medians
from ctta.data.corruptions import PAPER, corrupt
from ctta.data.corruptions.blur import disk
from ctta.data.corruptions.constants import CONSTANTS
from ctta.data.corruptions.domain import domain_key
from ctta.data.corruptions.frost import drawn_textures

COUNT, PLAIN_COUNT, SEVERITY = 10_000, 40, 5
Picture = NDArray[np.uint8]  # (H, W, 3)
Field = NDArray[np.float64]


def store(values: Field) -> Picture:
    """Clip [0, 1] and truncate to uint8."""
    stored: Picture = (np.clip(values, 0, 1) * 255).astype(np.uint8)
    return stored


def gaussian_noise(image: Picture, generator: Generator, std: float) -> Picture:
    """x + N(0, std)."""
    return store(image / 255 + std * generator.standard_normal(image.shape, dtype=np.float32))


def shot_noise(image: Picture, generator: Generator, photons: float) -> Picture:
    """Poisson(x photons) / photons."""
    return store(generator.poisson(image / 255 * photons) / photons)


def impulse_noise(image: Picture, generator: Generator, amount: float) -> Picture:
    """Salt and pepper."""
    draw = generator.random(image.shape, dtype=np.float32)
    return np.where(draw < amount / 2, 0, np.where(draw >= 1 - amount / 2, 255, image)).astype(np.uint8)


def defocus_blur(image: Picture, generator: Generator, radius: float, alias: float) -> Picture:
    """Each channel convolved with a disk."""
    kernel = disk(radius, alias)
    return store(np.stack([correlate(image[..., c] / 255, kernel, mode="mirror") for c in range(3)], axis=-1))


def glass_blur(image: Picture, generator: Generator, sigma: float, delta: int, rounds: int) -> Picture:
    """Pixel after pixel takes the place of a neighbour."""
    height, width, _ = image.shape
    out = store(gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest"))
    size = (rounds, height - 2 * delta, width - 2 * delta, 2)
    draws = generator.integers(-delta, delta, size, dtype=np.int8)
    for step in range(rounds):
        for row in range(height - delta, delta, -1):
            for column in range(width - delta, delta, -1):
                dy, dx = draws[step, row - delta - 1, column - delta - 1]
                out[row, column] = out[row + dy, column + dx]
    return store(gaussian_filter(out / 255, (sigma, sigma, 0), mode="nearest"))


def smear(values: Field, radius: int, sigma: float, angle: float) -> Field:
    """Sum of weighted copies along a line, edges replicated."""
    height, width = values.shape[:2]
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    out = np.zeros(values.shape)
    for i, weight in enumerate(weights):
        rows = np.arange(height) + math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        columns = np.arange(width) + math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        out += weight * values[np.clip(rows, 0, height - 1)][:, np.clip(columns, 0, width - 1)]
    return out


def motion_blur(image: Picture, generator: Generator, radius: int, sigma: float) -> Picture:
    """Smear in a random direction."""
    return store(smear(image / 255, radius, sigma, generator.uniform(-45, 45)))


def zoom(values: Field, factor: float) -> Field:
    """Zoom into the centre of a square."""
    side = len(values)
    kept = math.ceil(side / factor)
    start = (side - kept) // 2
    factors = (factor, factor, 1)[: values.ndim]
    large = spline_zoom(values[start : start + kept, start : start + kept], factors, order=1)
    trim = (len(large) - side) // 2
    return np.asarray(large[trim : trim + side, trim : trim + side])


def zoom_blur(image: Picture, generator: Generator, zooms: int, step: float) -> Picture:
    """Mean of the image and its zooms."""
    clean = image / 255
    return store((clean + sum(zoom(clean, 1 + i * step) for i in range(zooms))) / (zooms + 1))


def snow(image: Picture, generator: Generator, mean: float, std: float, factor: float, *rest: Any) -> Picture:
    """Flakes over a whitened image."""
    threshold, radius, sigma, mix = rest
    noise = generator.standard_normal(image.shape[:2], dtype=np.float32).astype(np.float64)
    layer = zoom(mean + std * noise, factor)
    layer[layer < threshold] = 0
    flakes = np.floor(np.clip(layer, 0, 1) * 255)
    flakes = np.rint(smear(flakes, radius, sigma, generator.uniform(-135, -45)))[..., None] / 255
    clean = image / 255
    grey = clean @ np.array([0.299, 0.587, 0.114])
    white = mix * clean + (1 - mix) * np.maximum(clean, 1.5 * grey[..., None] + 0.5)
    return store(white + flakes + np.rot90(flakes, 2))


def frost(image: Picture, generator: Generator, weight: float, frost_weight: float, shrink: int) -> Picture:
    """A random crop of a texture on top."""
    textures = drawn_textures()
    texture = textures[int(generator.integers(len(textures)))][shrink // 2 :: shrink, shrink // 2 :: shrink]
    height, width, _ = image.shape
    top, left = generator.integers(texture.shape[0] - height), generator.integers(texture.shape[1] - width)
    return store((weight * image + frost_weight * texture[top : top + height, left : left + width]) / 255)


def fog(image: Picture, generator: Generator, strength: float, decay: float, side: int) -> Picture:
    """Diamond-square plasma, point by point."""
    draws = iter(generator.random(side * side))
    cloud = np.zeros((side, side))
    wibble, step = 100.0, side
    while step >= 2:
        half = step // 2
        squares = [(y, x) for y in range(half, side, step) for x in range(half, side, step)]
        across = [(y, x) for y in range(0, side, step) for x in range(half, side, step)]
        down = [(y, x) for y in range(half, side, step) for x in range(0, side, step)]
        for points, reach in (
            (squares, [(-half, -half), (-half, half), (half, -half), (half, half)]),
            (across, [(-half, 0), (half, 0), (0, -half), (0, half)]),
            (down, [(-half, 0), (half, 0), (0, -half), (0, half)]),
        ):
            for y, x in points:
                mean = sum(cloud[(y + dy) % side, (x + dx) % side] for dy, dx in reach) / 4
                cloud[y, x] = mean + wibble * wibble * (2 * next(draws) - 1)
        step, wibble = half, wibble / decay
    cloud = (cloud - cloud.min()) / (cloud.max() - cloud.min())
    clean = image / 255
    foggy = clean + strength * cloud[: image.shape[0], : image.shape[1], None]
    return store(foggy * clean.max() / (clean.max() + strength))


def brightness(image: Picture, generator: Generator, shift: float) -> Picture:
    """V in HSV."""
    hsv = rgb_to_hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + shift, 0, 1)
    return store(np.asarray(hsv_to_rgb(hsv)))


def contrast(image: Picture, generator: Generator, scale: float) -> Picture:
    """Towards the mean."""
    mean = (image / 255).mean(axis=(0, 1))
    return store((image / 255 - mean) * scale + mean)


def elastic_transform(
    image: Picture, generator: Generator, alpha: float, sigma: float, affine: float, unit: float
) -> Picture:
    """An affine map, then a smooth displacement."""
    height, width, _ = image.shape
    unit *= min(height, width)
    draws = 2 * generator.random(6 + 2 * height * width, dtype=np.float32).astype(np.float64) - 1
    arm = min(height, width) // 3
    source = np.array([width // 2, height // 2]) + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    target = source + affine * unit * draws[:6].reshape(3, 2)
    back = np.linalg.solve(np.column_stack([target, np.ones(3)]), source)  # (3, 2): x, y, 1 -> x, y
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    x, y = np.moveaxis(np.stack([columns, rows, np.ones_like(rows)], axis=-1) @ back, -1, 0)
    moved = [map_coordinates(image[..., c] / 255, [y, x], order=1, mode="mirror") for c in range(3)]
    fields = draws[6:].reshape(2, height, width)
    dx, dy = (alpha * unit * gaussian_filter(f, sigma * unit, mode="reflect", truncate=3) for f in fields)
    places = [rows + dy, columns + dx]
    return store(np.stack([map_coordinates(c, places, order=1, mode="reflect") for c in moved], axis=-1))


def pixelate(image: Picture, generator: Generator, scale: float) -> Picture:
    """Down and up with Pillow."""
    height, width, _ = image.shape
    small = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Picture, generator: Generator, quality: int) -> Picture:
    """Through Pillow's JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


PLAIN: dict[str, Callable[..., Picture]] = {name: globals()[name] for name in PAPER}


def plain(images: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """The loop over images."""
    constants, key = CONSTANTS["cifar"][name][SEVERITY - 1], domain_key(name, SEVERITY, 0)
    return np.stack(
        [
            PLAIN[name](image, Generator(Philox(key=key, counter=[0, 0, 0, i])), *constants)
            for i, image in enumerate(images)
        ]
    )


def load() -> NDArray[np.uint8]:
    """10,000 images: CIFAR-10 twice if it is available, otherwise smooth noise of the same size."""
    path = Path(os.environ.get("CTTA_DATA", "../shared/data")) / "cifar10_test_first5000.npz"
    if path.exists():
        with np.load(path) as archive:
            images = archive["images"]
        return np.concatenate([images, images])[:COUNT]
    noise = np.random.default_rng(0).standard_normal((COUNT, 32, 32, 3), dtype=np.float32)
    return np.clip(128 + 400 * gaussian_filter(noise, (0, 2, 2, 0)), 0, 255).astype(np.uint8)


def main() -> None:
    """Print the table."""
    images = load()
    few = images[:PLAIN_COUNT]
    print(f"Image corruptions, severity {SEVERITY}, {COUNT} images of 32 px, {os.cpu_count()} cores")
    print(f"{'':20} {'plain loop s':>13} {'ctta s':>8} {'ratio':>7}")
    total = {"plain": 0.0, "ctta": 0.0}
    for name in PAPER:
        apart = np.abs(plain(few, name).astype(int) - corrupt(few, name, SEVERITY)) > 1
        if apart.mean() > 1e-3:
            raise SystemExit(f"{name}: the plain loop and ctta differ on {apart.mean():.2%} of the values.")
        seconds = medians(
            {
                "plain": lambda name=name: plain(few, name),  # type: ignore[misc]
                "ctta": lambda name=name: corrupt(images, name, SEVERITY),  # type: ignore[misc]
            },
            rounds=3,
            warm_up=0,
        )
        seconds["plain"] *= COUNT / PLAIN_COUNT
        for way in total:
            total[way] += seconds[way]
        print(f"{name:20} {seconds['plain']:13.2f} {seconds['ctta']:8.2f} {seconds['plain'] / seconds['ctta']:7.1f}")
    print(f"{'all fifteen':20} {total['plain']:13.2f} {total['ctta']:8.2f} {total['plain'] / total['ctta']:7.1f}")


if __name__ == "__main__":
    main()
