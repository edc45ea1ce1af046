"""Textures for the `frost` corruption: drawn here, or read from a folder of photographs.

The public code blends photographs with the image. They are not part of this package, so frost is drawn: crystals that
branch like those on a window, with grain and clouds, over a bluish-white base. Tones, contrast and roughness
are tuned to what the public generator does to real images, see `results/corruptions_vs_public.csv`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter

from ctta.base.errors import InputError
from ctta.data.pictures import read_picture

Texture: TypeAlias = NDArray[np.uint8]  # (H, W, 3)
Field: TypeAlias = NDArray[np.float64]  # (H, W)

SIDE = 640
# One texture per line: its tone (red, green, blue) and its contrast, in [0, 1].
TONES = (
    ((0.31, 0.58, 0.66), 0.076),
    ((0.77, 0.81, 0.85), 0.090),
    ((0.79, 0.81, 0.84), 0.090),
    ((0.54, 0.60, 0.65), 0.128),
    ((0.45, 0.49, 0.54), 0.178),
)
# Fractions of the variance.
CRYSTALS, GRAIN, CLOUDS = 0.60, 0.08, 0.32

PHOTOGRAPHS = (".png", ".jpg", ".jpeg")
PUBLIC_COUNT = 5


@lru_cache(maxsize=1)
def drawn_textures() -> tuple[Texture, ...]:
    """Draw five textures, always the same: like photographs, they do not depend on the seed of the corruption."""
    return tuple(_paint(Generator(Philox(key=number)), tone, contrast) for number, (tone, contrast) in enumerate(TONES))


@lru_cache(maxsize=4)
def photographs(folder: Path) -> tuple[Texture, ...]:
    """Read the frost photographs in a folder, sorted by name; only the first five, as in the public code."""
    names = photograph_names(folder)
    if not names:
        raise InputError(
            f"No frost photographs in {folder}. Expected a folder with PNG or JPEG files, as the public benchmark has "
            "them: name another folder, or leave `frost` out to have frost drawn."
        )
    return tuple(read_picture(folder / name) for name in names)


def photograph_names(folder: Path) -> list[str]:
    """Return the files of the photographs, in order."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [name for name in names if Path(name).suffix.lower() in PHOTOGRAPHS][:PUBLIC_COUNT]


def _paint(generator: Generator, tone: tuple[float, float, float], contrast: float) -> Texture:
    """Draw one texture (SIDE, SIDE, 3)."""
    grain = gaussian_filter(generator.standard_normal((SIDE, SIDE)), 0.5)
    # Clouds are smooth, so a sixteenth of the side is enough for them.
    coarse = gaussian_filter(generator.standard_normal((SIDE // 16, SIDE // 16)), 2.5, mode="wrap")
    clouds = np.asarray(Image.fromarray(coarse.astype(np.float32)).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    relief = (
        CRYSTALS**0.5 * _standard(_crystals(generator))
        + GRAIN**0.5 * _standard(grain)
        + CLOUDS**0.5 * _standard(clouds)
    )
    colour = np.array(tone) + contrast * relief[..., None]
    texture: Texture = np.rint(255 * np.clip(colour, 0, 1)).astype(np.uint8)
    return texture


def _crystals(generator: Generator) -> Field:
    """Draw ice that grows from random seeds: six arms per seed, branches at 60 degrees, branches of branches."""
    seeds, arms = 70, 6
    start = np.repeat(generator.uniform(0, SIDE, (seeds, 2)), arms, axis=0)
    angle = np.repeat(generator.uniform(0, 2 * np.pi, seeds), arms) + np.tile(np.arange(arms), seeds) * np.pi / 3
    length = generator.uniform(0.04, 0.16, len(angle)) * SIDE
    canvas = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(canvas)
    for sprouts, brightest in ((8, 150), (6, 200), (0, 255)):
        angle = angle + generator.normal(0, 0.06, len(angle))
        reach = length[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        light = generator.integers(brightest // 3, brightest, len(angle))
        width = np.maximum(length / 30, 1).astype(int)
        strokes = np.concatenate([start, start + reach], axis=1)
        for stroke, shade, thick in zip(strokes.tolist(), light.tolist(), width.tolist(), strict=True):
            pen.line(stroke, fill=shade, width=thick)
        along = generator.uniform(0.15, 1, (len(angle), sprouts, 1))
        side = generator.choice([-np.pi / 3, np.pi / 3], (len(angle), sprouts))
        start = (start[:, None] + along * reach[:, None]).reshape(-1, 2)
        # Branches near the tip are younger, and shorter.
        length = (0.45 * length[:, None] * (1.2 - along[..., 0])).ravel()
        angle = (angle[:, None] + side).ravel()
    return np.asarray(gaussian_filter(np.asarray(canvas, np.float64), 0.7))


def _standard(field: NDArray[np.floating[Any]]) -> Field:
    """Scale to mean 0 and standard deviation 1."""
    return np.asarray((field - field.mean()) / field.std(), np.float64)
