"""The 19 image corruptions of CIFAR-C and ImageNet-C, in NumPy, over whole batches.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.

One function a corruption, constants as data in `CONSTANTS`. Each function takes a chunk of uint8 images (N, H, W, 3),
one random generator an image, and its constants; it returns uint8 images of the same shape. Inside, values run
0..255 and are stored by truncation, as in the public sets.

An image is bit for bit the same in every batch, on every worker and on every run, see `domain.py`.

Departures from the public generator:
- Frost textures are drawn, see `frost.py`. The public photographs work too: name their folder.
- Motion that leaves a small image sees the replicated edge. The public code stops there and loses light.
- Sizes other than 32 and 224 px: the plasma of fog grows to the next power of two, elastic constants scale with the
  shorter side, all others stay as they are, in pixels.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy import fft
from scipy.ndimage import gaussian_filter, gaussian_filter1d

from ctta.base.errors import ConfigError, InputError, nearest
from ctta.data.corruptions.domain import THREADS, check_domain, domain_key, in_chunks, sample_generators, sample_indices
from ctta.data.corruptions.edges import blur_box, canny, chamfer_distance, correlate_uint8, equalise, fold
from ctta.data.corruptions.frost import drawn_textures, photographs

Images: TypeAlias = NDArray[np.uint8]  # (N, H, W, 3)
Floats: TypeAlias = NDArray[np.float32]
Corruption: TypeAlias = Callable[..., Images]

PAPER = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The fifteen corruptions in the order of the paper's columns: the continual order."""
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four held-out corruptions of the public sets."""
NAMES = PAPER + EXTRA
PRESETS = ("cifar", "imagenet")
SMALLEST = 28

# name -> preset -> one tuple of constants a severity, in the order of the function's arguments.
CONSTANTS: Mapping[str, Mapping[str, tuple[tuple[float, ...], ...]]] = {
    "gaussian_noise": {  # std
        "cifar": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        "imagenet": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    },
    "shot_noise": {  # photons at full brightness
        "cifar": ((500,), (250,), (100,), (75,), (50,)),
        "imagenet": ((60,), (25,), (12,), (5,), (3,)),
    },
    "impulse_noise": {  # share of values
        "cifar": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        "imagenet": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    },
    "defocus_blur": {  # radius, sigma of the antialiasing
        "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    },
    "glass_blur": {  # sigma, delta, rounds
        "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    },
    "motion_blur": {  # radius, sigma
        "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    },
    "zoom_blur": {  # number of zooms, step
        "cifar": ((7, 0.01), (12, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)),
        "imagenet": ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03)),
    },
    "snow": {  # mean, std, zoom, threshold, radius, sigma, mix
        "cifar": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "imagenet": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    },
    "frost": {  # image weight, frost weight, one texture pixel kept in this many
        "cifar": ((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
        "imagenet": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    },
    "fog": {  # strength, decay, smallest plasma map
        "cifar": ((0.2, 3, 32), (0.5, 3, 32), (0.75, 2.5, 32), (1, 2, 32), (1.5, 1.75, 32)),
        "imagenet": ((1.5, 2, 256), (2, 2, 256), (2.5, 1.7, 256), (2.5, 1.5, 256), (3, 1.4, 256)),
    },
    "brightness": {  # shift of V
        "cifar": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        "imagenet": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    },
    "contrast": {  # scale around the mean
        "cifar": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        "imagenet": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    },
    "elastic_transform": {  # alpha, sigma, affine; then what all three are multiples of, in sides of the image
        "cifar": (
            (0, 0, 0.08, 1),
            (0.05, 0.2, 0.07, 1),
            (0.08, 0.06, 0.06, 1),
            (0.1, 0.04, 0.05, 1),
            (0.1, 0.03, 0.03, 1),
        ),
        "imagenet": (  # the public code has 244, not 224
            (2, 0.7, 0.1, 244 / 224),
            (2, 0.08, 0.2, 244 / 224),
            (0.05, 0.01, 0.02, 244 / 224),
            (0.07, 0.01, 0.02, 244 / 224),
            (0.12, 0.01, 0.02, 244 / 224),
        ),
    },
    "pixelate": {  # scale
        "cifar": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        "imagenet": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    },
    "jpeg_compression": {  # quality
        "cifar": ((80,), (65,), (58,), (50,), (40,)),
        "imagenet": ((25,), (18,), (15,), (10,), (7,)),
    },
    "speckle_noise": {  # std relative to the value
        "cifar": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
        "imagenet": ((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
    },
    "gaussian_blur": {  # sigma
        "cifar": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
        "imagenet": ((1,), (2,), (3,), (4,), (6,)),
    },
    "spatter": {  # mean, std, sigma, threshold, strength, mud
        "cifar": (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "imagenet": (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
    },
    "saturate": {  # scale and shift of S
        "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
}

RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
# Truncation must not turn a rounding error of 1e-5 into a grey level: 99.99999 is stored as 100.
NUDGE = np.float32(2**-13)
# Pixels in a chunk: small enough for the cache, large enough that one call of NumPy is worth its while.
CHUNK = 2**16
# A kernel with more taps than this is faster by Fourier transform.
MOST_TAPS = 60


def corrupt(
    images: Images,
    name: str,
    severity: int = 5,
    preset: str = "cifar",
    seed: int = 0,
    first: int | NDArray[np.int64] = 0,
    frost: str | os.PathLike[str] | None = None,
) -> Images:
    """Corrupt uint8 images (N, H, W, 3); returns new uint8 images of the same shape.

    `first` is the index of `images[0]` in its domain, or one index an image: hand over a domain in pieces, or in any
    order, and get the same images.
    `frost` is a folder with the public frost photographs; without it, frost is drawn.
    """
    check_domain(name, NAMES, severity, seed)
    _check(images, preset)
    indices = sample_indices(first, len(images))
    constants = CONSTANTS[name][preset][severity - 1]
    options: dict[str, Any] = {}
    if name == "frost":
        options["textures"] = drawn_textures() if frost is None else photographs(Path(frost).absolute())
    key = domain_key(name, severity, seed)
    n, height, width, _ = images.shape
    out = np.empty_like(images, order="C")

    def fill(chunk: slice) -> None:
        generators = sample_generators(key, indices[chunk])
        out[chunk] = CORRUPTIONS[name](np.ascontiguousarray(images[chunk]), generators, *constants, **options)

    in_chunks(fill, n, max(1, CHUNK // (height * width)), THREADS)
    return out


def _check(images: Images, preset: str) -> None:
    """Refuse what cannot be corrupted, with the remedy."""
    if preset not in PRESETS:
        raise ConfigError(f"No preset of constants is called {preset!r}. {nearest(str(preset), PRESETS)}")
    if not isinstance(images, np.ndarray):
        kind = type(images).__name__
        raise InputError(f"Images must be a NumPy array of uint8 (N, H, W, 3). Got {kind} instead: convert it first.")
    if images.dtype != np.uint8:
        remedy = "multiply images in [0, 1] by 255 and convert them with .astype(np.uint8)"
        raise InputError(f"Images must be uint8 in 0..255. Got {images.dtype} instead: {remedy}.")
    if images.ndim != 4 or images.shape[3] != 3:
        remedy = "add the batch axis" if images.ndim == 3 else "move the three channels last"
        raise InputError(f"Images must have the shape (N, H, W, 3). Got {images.shape} instead: {remedy}.")
    if min(images.shape[1:3]) < SMALLEST:
        raise InputError(
            f"Images must be at least {SMALLEST} pixels high and wide. Got {images.shape[1]} x {images.shape[2]} "
            "instead: enlarge them first."
        )


# Noise.


def gaussian_noise(x: Images, generators: Sequence[Generator], std: float) -> Images:
    """Add N(0, std) to each value."""
    noise = _normal(generators, x.shape[1:])
    noise *= np.float32(255 * std)
    noise += x
    return _truncate(noise)


def shot_noise(x: Images, generators: Sequence[Generator], photons: float) -> Images:
    """Count photons: Poisson(x photons) / photons."""
    rate = np.arange(256) * (photons / 255)
    counts = np.empty(x.shape, np.float32)
    for i, generator in enumerate(generators):
        counts[i] = generator.poisson(rate[x[i]])
    counts *= np.float32(255 / photons)
    return _truncate(counts)


def impulse_noise(x: Images, generators: Sequence[Generator], amount: float) -> Images:
    """Salt and pepper: a share of the values becomes 0 or 255, half each."""
    draw = _uniform(generators, x.shape[1:])
    out = x.copy()
    out[draw < np.float32(amount / 2)] = 0
    out[draw >= np.float32(1 - amount / 2)] = 255
    return out


def speckle_noise(x: Images, generators: Sequence[Generator], std: float) -> Images:
    """Add noise in proportion to the value: x + x N(0, std)."""
    noise = _normal(generators, x.shape[1:])
    noise *= np.float32(std)
    noise += 1
    noise *= x
    return _truncate(noise)


# Blur.


def gaussian_blur(x: Images, generators: Sequence[Generator], sigma: float) -> Images:
    """Gaussian blur of each channel, edges replicated."""
    return _truncate(_smooth(x.astype(np.float32), sigma))


def defocus_blur(x: Images, generators: Sequence[Generator], radius: float, alias: float) -> Images:
    """Convolve with an antialiased disk, borders mirrored about the edge pixel."""
    kernel = disk(radius, alias)  # symmetric: convolution and correlation agree
    reach = len(kernel) // 2
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect").astype(np.float32)
    out = np.zeros(x.shape, np.float32)
    taps = np.argwhere(kernel > 0)
    if len(taps) <= MOST_TAPS:
        for top, left in taps.tolist():
            out += np.float32(kernel[top, left]) * padded[:, top : top + height, left : left + width]
        return _truncate(out)
    shape = [fft.next_fast_len(side + 2 * reach, real=True) for side in (height, width)]
    response = fft.rfft2(kernel, shape)
    planes = padded.transpose(0, 3, 1, 2).astype(np.float64)
    for i, image in enumerate(planes):  # one transform an image: its rounding cannot depend on the batch
        full = fft.irfft2(fft.rfft2(image, shape) * response, shape)
        out[i] = full[:, 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width].transpose(1, 2, 0)
    return _truncate(out)


@lru_cache(maxsize=64)
def disk(radius: float, alias: float) -> NDArray[np.float64]:
    """The kernel of defocus: a disk of sum 1 on the integer grid, smoothed by a small Gaussian; no empty margins."""
    reach, smoothing = (8, 1) if radius <= 8 else (int(radius), 2)
    offset = np.arange(-reach, reach + 1)
    kernel = (offset[:, None] ** 2 + offset**2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    taps = np.exp(-(np.arange(-smoothing, smoothing + 1) ** 2) / (2 * alias**2))
    taps /= taps.sum()
    padded = np.pad(kernel, smoothing, mode="reflect")
    side = len(kernel)
    rows = sum(tap * padded[i : i + side] for i, tap in enumerate(taps))
    kernel = sum(tap * rows[:, i : i + side] for i, tap in enumerate(taps))
    kernel = np.where(kernel > 1e-9, kernel, 0)
    used = np.flatnonzero(kernel.max(axis=0))
    return np.ascontiguousarray(kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1])


def glass_blur(x: Images, generators: Sequence[Generator], sigma: float, delta: int, rounds: int) -> Images:
    """Blur, let pixels take the place of their neighbours, blur again.

    The public loop runs from the last pixel to the first and overwrites each with the pixel at a random offset. That
    neighbour has already been overwritten if it lies later in the image, and then stands for a pixel further on. So a
    round is a map from pixels to the pixels they show, found by following these chains; no loop over pixels is needed.
    """
    n, height, width, _ = x.shape
    blurred = _truncate(_smooth(x.astype(np.float32), sigma))
    rows = np.arange(delta + 1, height - delta + 1)
    columns = np.arange(delta + 1, width - delta + 1)
    draws = np.stack(
        [g.integers(-delta, delta, (rounds, len(rows), len(columns), 2), dtype=np.int8) for g in generators]
    ).astype(np.int32)
    place = np.arange(n * height * width, dtype=np.int32)
    shown = place
    for step in range(rounds):
        taken = place.reshape(n, height, width).copy()
        taken[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] += draws[:, step, ..., 0] * width
        taken[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] += draws[:, step, ..., 1]
        shown = shown[_follow(taken.ravel(), place)]
    moved = blurred.reshape(-1, 3)[shown].reshape(x.shape)
    return _truncate(_smooth(moved.astype(np.float32), sigma))


def _follow(taken: NDArray[np.int32], place: NDArray[np.int32]) -> NDArray[np.int32]:
    """Follow chains of pixels that took from a later, already overwritten pixel. Each pass doubles what is followed."""
    unresolved = taken > place
    pending = np.flatnonzero(unresolved)
    while len(pending):
        target = taken[pending]
        still = unresolved[target]
        taken[pending] = taken[target]
        unresolved[pending] = still
        pending = pending[still]
    return taken


def motion_blur(x: Images, generators: Sequence[Generator], radius: int, sigma: float) -> Images:
    """Smear along a line in a random direction within 45 degrees of the horizontal."""
    angles = [generator.uniform(-45, 45) for generator in generators]
    return _truncate(_smear(x.astype(np.float32), radius, sigma, angles))


def zoom_blur(x: Images, generators: Sequence[Generator], zooms: int, step: float) -> Images:
    """The mean of the image and of its zooms into the centre."""
    n, height, width, _ = x.shape
    # Rows and columns first: what is moved in memory is then a run of values, not a pixel.
    clean = np.ascontiguousarray(x.transpose(1, 2, 0, 3)).reshape(height, width, n * 3).astype(np.float32)
    total = clean.copy()
    for i in range(zooms):
        total += _zoom(clean, 1 + i * step)
    total /= zooms + 1
    return _truncate(total.reshape(height, width, n, 3).transpose(2, 0, 1, 3))


# Weather.


def snow(
    x: Images,
    generators: Sequence[Generator],
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    mix: float,
) -> Images:
    """Whiten the image, then add falling flakes and the same flakes turned by 180 degrees."""
    noise = _normal(generators, x.shape[1:3])
    noise *= np.float32(std)
    noise += np.float32(mean)
    layer = _zoom(noise.transpose(1, 2, 0), zoom).transpose(2, 0, 1)
    layer = np.where(layer < np.float32(threshold), np.float32(0), layer)
    flakes = np.floor(np.clip(layer, 0, 1) * 255)[..., None]
    angles = [generator.uniform(-135, -45) for generator in generators]
    flakes = np.rint(_smear(flakes, radius, sigma, angles))
    clean = x.astype(np.float32)
    grey = 0.299 * clean[..., :1] + 0.587 * clean[..., 1:2] + 0.114 * clean[..., 2:]
    white = np.maximum(clean, 1.5 * grey + 127.5)
    return _truncate(mix * clean + (1 - mix) * white + flakes + flakes[:, ::-1, ::-1])


def frost(
    x: Images,
    generators: Sequence[Generator],
    weight: float,
    frost_weight: float,
    shrink: int,
    textures: Sequence[Images],
) -> Images:
    """Lay a random piece of a frost texture over the image."""
    _, height, width, _ = x.shape
    out = x.astype(np.float32)
    out *= np.float32(weight)
    for i, generator in enumerate(generators):
        texture = _shrunk(textures[int(generator.integers(len(textures)))], shrink, height, width)
        top = generator.integers(texture.shape[0] - height)
        left = generator.integers(texture.shape[1] - width)
        out[i] += np.float32(frost_weight) * texture[top : top + height, left : left + width]
    return _truncate(out)


def _shrunk(texture: Images, shrink: int, height: int, width: int) -> Images:
    """Every `shrink`-th pixel; mirrored at its borders where the image needs more than there is."""
    small = texture[shrink // 2 :: shrink, shrink // 2 :: shrink]
    missing = [max(0, side + 1 - have) for side, have in zip((height, width), small.shape, strict=False)]
    if any(missing):
        small = np.pad(small, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="symmetric")
    return small


def fog(x: Images, generators: Sequence[Generator], strength: float, decay: float, smallest: int) -> Images:
    """Add a cloud of plasma and scale back to the range the image had."""
    _, height, width, _ = x.shape
    side = max(smallest, 2 ** math.ceil(math.log2(max(height, width))))
    draws = np.stack([generator.random(side * side) for generator in generators])
    cloud = plasma(draws, side, decay)[:, :height, :width, None]
    top = x.max(axis=(1, 2, 3), keepdims=True).astype(np.float32)
    scale = top / (top + np.float32(255 * strength))
    out = x + np.float32(255 * strength) * cloud.astype(np.float32)
    out *= scale
    return _truncate(out)


def plasma(draws: NDArray[np.float64], side: int, decay: float) -> NDArray[np.float64]:
    """Clouds in [0, 1] by the diamond-square method on a torus, from U(0, 1) draws (N, side * side).

    Each level sets the centres of the squares, then the middles of their edges, to the mean of four neighbours plus
    wibble * U(-wibble, wibble). The wibble starts at 100 and is divided by `decay` each level.
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


# Digital.


def brightness(x: Images, generators: Sequence[Generator], shift: float) -> Images:
    """Add to V in HSV. Hue and saturation stay, so the channels keep their ratios."""
    clean = x.astype(np.float32)
    value = x.max(axis=3, keepdims=True).astype(np.float32)
    brighter = np.minimum(value + np.float32(255 * shift), 255)
    # Black has no saturation: it turns grey.
    return _truncate(np.where(value > 0, clean * (brighter / np.maximum(value, 1)), brighter))


def saturate(x: Images, generators: Sequence[Generator], scale: float, shift: float) -> Images:
    """Scale and shift S in HSV. Hue and value stay, so the channels keep the ratios of their distances to V."""
    value = x.max(axis=3, keepdims=True).astype(np.float32)
    distance = value - x  # 0 for the strongest channel, V S for the weakest
    spread = distance.max(axis=3, keepdims=True)
    saturation = np.clip(np.float32(scale) * spread / np.maximum(value, 1) + np.float32(shift), 0, 1)
    # Grey has hue 0 by convention: it turns red.
    share = np.where(spread > 0, distance / np.maximum(spread, 1), np.array([0, 1, 1], np.float32))
    return _truncate(value - value * saturation * share)


def contrast(x: Images, generators: Sequence[Generator], scale: float) -> Images:
    """Pull each channel towards its mean over the image."""
    _, height, width, _ = x.shape
    mean = x.sum(axis=(1, 2), keepdims=True, dtype=np.int64) / (height * width)
    return _truncate(np.float32(scale) * x + ((1 - scale) * mean).astype(np.float32))


def elastic_transform(
    x: Images, generators: Sequence[Generator], alpha: float, sigma: float, affine: float, unit: float
) -> Images:
    """A random affine map, then a random smooth displacement of every pixel."""
    n, height, width, _ = x.shape
    side = min(height, width)
    unit *= side
    draws = 2 * _uniform(generators, (6 + 2 * height * width,)).astype(np.float64) - 1
    moves = affine * unit * draws[:, :6].reshape(n, 3, 2)  # of three points, as x and y
    centre, arm = np.array([width // 2, height // 2]), side // 3
    anchors = centre + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    across, down = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
    matrix = _inverse_affine(anchors, anchors + moves)[..., None, None]  # (N, 2, 3, 1, 1)
    columns = matrix[:, 0, 0] * across + matrix[:, 0, 1] * down + matrix[:, 0, 2]
    rows = matrix[:, 1, 0] * across + matrix[:, 1, 1] * down + matrix[:, 1, 2]
    out = _sample(x.astype(np.float32), rows, columns, "reflect_101")
    if alpha > 0:
        fields = draws[:, 6:].reshape(n, 2, height, width)
        fields = alpha * unit * (_smoothing(height, sigma * unit) @ fields @ _smoothing(width, sigma * unit).T)
        out = _sample(out, down + fields[:, 1], across + fields[:, 0], "reflect")
    return _truncate(out)


def _inverse_affine(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The maps (N, 2, 3) that take three target points (N, 3, 2) back to the three source points (3, 2)."""
    u, v = target[:, 1] - target[:, 0], target[:, 2] - target[:, 0]
    a, b = source[1] - source[0], source[2] - source[0]
    # Solved by Cramer's rule, element by element: LAPACK may round differently in another batch.
    area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    by_x = (a * v[:, 1:] - b * u[:, 1:]) / area[:, None]  # (N, 2)
    by_y = (b * u[:, :1] - a * v[:, :1]) / area[:, None]
    rest = source[0] - by_x * target[:, 0, :1] - by_y * target[:, 0, 1:]
    return np.stack([by_x, by_y, rest], axis=2)


@lru_cache(maxsize=16)
def _smoothing(side: int, sigma: float) -> NDArray[np.float64]:
    """A Gaussian filter as a matrix. The widest reaches far over the border, where taps are slower than a product."""
    return np.asarray(gaussian_filter1d(np.eye(side), sigma, axis=0, mode="reflect", truncate=3.0))


def pixelate(x: Images, generators: Sequence[Generator], scale: float) -> Images:
    """Shrink by averaging boxes, then enlarge again."""
    _, height, width, _ = x.shape
    small = (int(width * scale), int(height * scale))
    out = np.empty_like(x)
    for i, image in enumerate(x):
        shrunk = Image.fromarray(image).resize(small, Image.Resampling.BOX)
        out[i] = np.asarray(shrunk.resize((width, height), Image.Resampling.BOX))
    return out


def jpeg_compression(x: Images, generators: Sequence[Generator], quality: int) -> Images:
    """Store as JPEG and read back."""
    out = np.empty_like(x)
    for i, image in enumerate(x):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=quality)
        with Image.open(buffer) as stored:
            out[i] = np.asarray(stored)
    return out


def spatter(
    x: Images,
    generators: Sequence[Generator],
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: int,
) -> Images:
    """Splash water (`mud` 0) or mud (`mud` 1) on the lens."""
    noise = np.stack([generator.standard_normal(x.shape[1:3]) for generator in generators])
    layer = gaussian_filter(mean + std * noise, (0, sigma, sigma), mode="nearest")
    layer[layer < threshold] = 0
    clean = x.astype(np.float32)
    if mud:
        mask = (layer > threshold).astype(np.float32)
        mask = gaussian_filter(mask, (0, strength, strength), mode="nearest")
        mask[mask < 0.8] = 0
        mask = mask[..., None]
        return _truncate(clean * (1 - mask) + np.array([63, 42, 20], np.float32) * mask)
    # Layers above 1 wrap round in the public conversion to uint8. It happens at the borders, where the blur is weak.
    water = ((255 * layer).astype(np.int64) % 256).astype(np.uint8)
    light = (water.astype(np.float32) * droplets(water))[..., None]
    peak = light.max(axis=(1, 2), keepdims=True)
    light *= np.float32(strength) / np.where(peak > 0, peak, np.float32(1))
    return _truncate(clean + light * np.array([175, 238, 238], np.float32))


def droplets(water: Images) -> Images:
    """Relief of water drops (N, H, W): bright where the distance to the nearest outline grows down and right."""
    distance = np.minimum(chamfer_distance(canny(water, 50, 150), 20), np.float32(20))
    relief = correlate_uint8(equalise(blur_box(distance).astype(np.uint8)), RELIEF)
    drops: Images = np.rint(blur_box(relief.astype(np.float32))).astype(np.uint8)
    return drops


# What several corruptions share.


def _truncate(values: Floats) -> Images:
    """Clip to 0..255, in place, and store as uint8 by truncation."""
    values += NUDGE
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)


def _normal(generators: Sequence[Generator], shape: tuple[int, ...]) -> Floats:
    """N(0, 1) draws (N, *shape), each image from its own generator."""
    out = np.empty((len(generators), *shape), np.float32)
    for i, generator in enumerate(generators):
        generator.standard_normal(dtype=np.float32, out=out[i])
    return out


def _uniform(generators: Sequence[Generator], shape: tuple[int, ...]) -> Floats:
    """U(0, 1) draws (N, *shape), each image from its own generator."""
    out = np.empty((len(generators), *shape), np.float32)
    for i, generator in enumerate(generators):
        generator.random(dtype=np.float32, out=out[i])
    return out


def _smooth(x: Floats, sigma: float) -> Floats:
    """Gaussian filter of images (N, H, W, C), edges replicated."""
    return np.asarray(gaussian_filter(x, (0, sigma, sigma, 0), mode="nearest", truncate=4.0))


def _smear(x: Floats, radius: int, sigma: float, angles: Sequence[float]) -> Floats:
    """Average copies of each image (N, H, W, C) along a line, edges replicated.

    Copy i lies i pixels along the direction and weighs exp(-i^2 / 2 sigma^2): motion has a sharp front and a tail.
    """
    n, height, width, _ = x.shape
    line = np.arange(2 * radius + 1)
    weights = np.exp(-(line**2) / (2 * sigma**2))
    reach = int(np.count_nonzero(weights > 1e-7))
    weights = (weights / weights.sum()).astype(np.float32)
    padded = np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    places = np.moveaxis(sliding_window_view(padded, (height, width), (1, 2)), 3, 5)  # (N, top, left, H, W, C)
    direction = np.array([(math.sin(math.radians(angle)), math.cos(math.radians(angle))) for angle in angles])
    image = np.arange(n)
    out = np.zeros_like(x)
    for i in range(reach):
        top, left = reach + np.ceil(i * direction.T - 0.5).astype(np.intp)
        copy = places[image, top, left]
        copy *= weights[i]
        out += copy
    return out


def _zoom(x: Floats, factor: float) -> Floats:
    """Zoom into the centre of (H, W, values) by linear interpolation."""
    for axis in (0, 1):
        low, high, share = _zoom_taps(x.shape[axis], factor)
        near, far = x.take(low, axis), x.take(high, axis)
        far -= near
        far *= share if axis == 1 else share[:, None]
        near += far
        x = near
    return x


@lru_cache(maxsize=256)
def _zoom_taps(side: int, factor: float) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """For each place on the zoomed axis: the two places it lies between, and how far it is from the first."""
    kept = math.ceil(side / factor)
    enlarged = round(kept * factor)
    place = np.arange((enlarged - side) // 2, (enlarged - side) // 2 + side) * ((kept - 1) / max(enlarged - 1, 1))
    low = np.minimum(place.astype(np.intp), kept - 1)
    start = (side - kept) // 2
    return start + low, start + np.minimum(low + 1, kept - 1), (place - low).astype(np.float32)[:, None]


def _sample(x: Floats, rows: NDArray[np.float64], columns: NDArray[np.float64], border: str) -> Floats:
    """Read images (N, H, W, C) at real places (N, H, W) by linear interpolation."""
    n, height, width, channels = x.shape
    top, left = np.floor(rows).astype(np.int32), np.floor(columns).astype(np.int32)
    down, right = (rows - top).astype(np.float32)[..., None], (columns - left).astype(np.float32)[..., None]
    start = (np.arange(n, dtype=np.int32) * (height * width))[:, None, None]
    row = [start + width * fold(top + i, height, border) for i in (0, 1)]
    column = [fold(left + i, width, border) for i in (0, 1)]
    flat = x.reshape(-1, channels)
    upper, lower = (
        _between(flat.take(start_of_row + column[0], 0), flat.take(start_of_row + column[1], 0), right)
        for start_of_row in row
    )
    return _between(upper, lower, down)


def _between(near: Floats, far: Floats, share: Floats) -> Floats:
    """Linear interpolation, in the memory of its arguments."""
    far -= near
    far *= share
    far += near
    return far


CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "spatter": spatter,
    "saturate": saturate,
}
