"""The 19 image corruptions of CIFAR-C and ImageNet-C, in NumPy, over whole batches.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.

There is one function per corruption, in `noise`, `blur`, `weather` and `digital`; the constants are data, in
`constants`. A function takes a chunk of uint8 images (N, H, W, 3), one random generator per image, and its constants.
It returns uint8 images of the same shape. Inside, values are in 0..255 and are truncated to uint8, as in the public
sets. Randomness is described in `domain`.

Departures from the public generator:
- Frost textures are drawn, see `frost`. The public photographs can be used too: name their folder.
- Motion that leaves a small image sees the replicated edge. The public code stops there and loses light.
- Sizes other than 32 and 224 pixels: the plasma of fog grows to the next power of two, and elastic constants scale with
  the shorter side. All other constants stay as they are, in pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, InputError, nearest
from ctta.base.text import quoted
from ctta.data.corruptions import blur, digital, noise, weather
from ctta.data.corruptions.constants import CONSTANTS, NAMES, PRESETS
from ctta.data.corruptions.domain import Generators, check_domain, domain_key, in_chunks, sample_indices
from ctta.data.corruptions.frost import drawn_textures, photographs
from ctta.data.pictures import Images

CORRUPTIONS: Mapping[str, Callable[..., Images]] = {
    function.__name__: function
    for function in (
        *(noise.gaussian_noise, noise.shot_noise, noise.impulse_noise),
        *(blur.defocus_blur, blur.glass_blur, blur.motion_blur, blur.zoom_blur),
        *(weather.snow, weather.frost, weather.fog),
        *(digital.brightness, digital.contrast, digital.elastic_transform, digital.pixelate, digital.jpeg_compression),
        *(noise.speckle_noise, blur.gaussian_blur, weather.spatter, digital.saturate),
    )
}
SMALLEST = 28  # pixels
CHUNK = 2**16  # pixels per chunk: few enough for the cache, enough to outweigh the overhead of a NumPy call


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

    `first` is the index of `images[0]` in its domain, or one index per image: a domain that is passed in pieces, or in
    any order, gives the same images.
    `frost` is a folder with the public frost photographs; without it, frost is drawn.
    """
    check_domain(name, NAMES, severity, seed)
    _check(images, preset)
    indices, key = sample_indices(first, len(images)), domain_key(name, severity, seed)
    constants = CONSTANTS[preset][name][severity - 1]
    options: dict[str, Any] = {}
    if name == "frost":
        options["textures"] = drawn_textures() if frost is None else photographs(Path(frost).absolute())
    out = np.empty_like(images, order="C")

    def fill(chunk: slice, generators: Generators) -> None:
        out[chunk] = CORRUPTIONS[name](np.ascontiguousarray(images[chunk]), generators, *constants, **options)

    in_chunks(fill, key, indices, max(1, CHUNK // (images.shape[1] * images.shape[2])))
    return out


def _check(images: Images, preset: str) -> None:
    """Refuse what cannot be corrupted, with the remedy."""
    if preset not in PRESETS:
        raise ConfigError(f"No preset of constants is called {quoted(preset)}. {nearest(preset, PRESETS)}")
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
