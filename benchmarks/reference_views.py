"""CoTTA's image augmentation, written a second time and without optimisation. It shares no code with `ctta.views`.

Two forms:

    reference_view     one image at a time in NumPy and Python loops, to be read and compared with; slow on purpose
    batch_view         a batch, one PyTorch call after the other on the padded images as the released code runs them;
                       the baseline of the timings

Both take their random numbers as `ViewParameters`, so that two implementations can use the same ones.
"""

from __future__ import annotations

import colorsys
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Image = NDArray[np.float64]  # (channels, height, width) in [0, 1]

LUMA = (0.2989, 0.587, 0.114)
KINDS = ("brightness", "contrast", "saturation", "hue", "gamma")
NOISE = 0.005


@dataclass(frozen=True)
class ViewParameters:
    """The random numbers of one augmented view."""

    order: tuple[int, ...] = (0, 1, 2, 3, 4)  # positions in KINDS
    factors: tuple[float, ...] = (1.0, 1.0, 1.0, 0.0, 1.0)  # one per entry of KINDS
    angle: float = 0.0  # radians, clockwise as seen on the screen
    shift: tuple[int, int] = (0, 0)  # pixels to the right, pixels down
    scale: float = 1.0
    flip: bool = False
    sigma: float = 0.001


def draw_parameters(height: int, width: int, source: random.Random) -> ViewParameters:
    """Draw one augmented view as the released code does."""
    padded_height, padded_width = height + 2 * (height // 2), width + 2 * (width // 2)
    return ViewParameters(
        order=tuple(source.sample(range(5), 5)),
        factors=(
            source.uniform(0.6, 1.4),
            source.uniform(0.7, 1.3),
            source.uniform(0.5, 1.5),
            source.uniform(-0.06, 0.06),
            source.uniform(0.7, 1.3),
        ),
        angle=math.radians(source.uniform(-15, 15)),
        shift=(
            round(source.uniform(-padded_width / 16, padded_width / 16)),
            round(source.uniform(-padded_height / 16, padded_height / 16)),
        ),
        scale=source.uniform(0.9, 1.1),
        flip=source.random() < 0.5,
        sigma=source.uniform(0.001, 0.5),
    )


# --- One image at a time -------------------------------------------------------------------------------------------


def reference_view(image: Tensor, parameters: ViewParameters, noise: Tensor | None = None) -> Tensor:
    """Augment one image, (C, H, W); without noise unless it is given."""
    pixels = np.clip(image.detach().double().numpy(), 0, 1)
    pixels = jitter(pixels, parameters.order, parameters.factors)
    pixels = geometry(pixels, parameters)
    if noise is not None:
        pixels = pixels + noise.double().numpy()
    return torch.from_numpy(np.clip(pixels, 0, 1)).to(image.dtype)


def jitter(image: Image, order: tuple[int, ...], factors: tuple[float, ...]) -> Image:
    """Apply the colour jitters one after the other."""
    for kind in order:
        image = JITTERS[kind](image, factors[kind])
    return image


def geometry(image: Image, parameters: ViewParameters) -> Image:
    """Pad, map, blur, crop, flip."""
    _, height, width = image.shape
    image = pad(image)
    image = affine(image, parameters.angle, parameters.shift, parameters.scale)
    image = blur(image, parameters.sigma)
    image = crop(image, height, width)
    return flip(image) if parameters.flip else image


def blend(image: Image, other: Image | float, factor: float) -> Image:
    """Mix `factor` of the image with 1 - `factor` of the other."""
    return np.clip(factor * image + (1 - factor) * other, 0, 1)


def grey(image: Image) -> Image:
    """The luma of each pixel, (1, H, W)."""
    if len(image) == 1:
        return image
    return sum((weight * channel for weight, channel in zip(LUMA, image, strict=True)), np.zeros(image.shape[1:]))[None]


def brightness(image: Image, factor: float) -> Image:
    """Blend with black."""
    return blend(image, 0.0, factor)


def contrast(image: Image, factor: float) -> Image:
    """Blend with the mean grey of the image."""
    return blend(image, float(grey(image).mean()), factor)


def saturation(image: Image, factor: float) -> Image:
    """Blend with the grey image."""
    return image if len(image) == 1 else blend(image, grey(image), factor)


def hue(image: Image, shift: float) -> Image:
    """Pixel by pixel to hue, saturation, value; turn the hue; and back."""
    if len(image) == 1:
        return image
    turned = np.empty_like(image)
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*image[:, row, column].tolist())
            turned[:, row, column] = colorsys.hsv_to_rgb((h + shift) % 1.0, s, v)
    return np.clip(turned, 0, 1)


def gamma(image: Image, exponent: float) -> Image:
    """Raise each value to a power."""
    return np.clip(image**exponent, 0, 1)


JITTERS: tuple[Callable[[Image, float], Image], ...] = (brightness, contrast, saturation, hue, gamma)


def pad(image: Image) -> Image:
    """Repeat the edge by half the size on each side."""
    _, height, width = image.shape
    return np.pad(image, ((0, 0), (height // 2, height // 2), (width // 2, width // 2)), mode="edge")


def affine(image: Image, angle: float, shift: tuple[int, int], scale: float) -> Image:
    """Turn about the centre, grow, then move: each output pixel reads where it came from, bilinear, zero outside."""
    _, height, width = image.shape
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    out = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            # Undo the move, then the turn and the growth.
            x, y = column - middle_x - shift[0], row - middle_y - shift[1]
            from_x = (math.cos(angle) * x + math.sin(angle) * y) / scale + middle_x
            from_y = (-math.sin(angle) * x + math.cos(angle) * y) / scale + middle_y
            left, top = math.floor(from_x), math.floor(from_y)
            for corner_y, weight_y in ((top, top + 1 - from_y), (top + 1, from_y - top)):
                for corner_x, weight_x in ((left, left + 1 - from_x), (left + 1, from_x - left)):
                    if 0 <= corner_y < height and 0 <= corner_x < width:
                        out[:, row, column] += weight_y * weight_x * image[:, corner_y, corner_x]
    return out


def blur(image: Image, sigma: float) -> Image:
    """A 5x5 Gaussian, the border reflected."""
    weights = np.array([math.exp(-0.5 * (step / sigma) ** 2) for step in (-2, -1, 0, 1, 2)])
    weights /= weights.sum()
    _, height, width = image.shape
    wide = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="reflect")
    out = np.zeros_like(image)
    for down in range(5):
        for right in range(5):
            out += weights[down] * weights[right] * wide[:, down : down + height, right : right + width]
    return out


def crop(image: Image, height: int, width: int) -> Image:
    """Cut out the centre."""
    top, left = (image.shape[1] - height) // 2, (image.shape[2] - width) // 2
    return image[:, top : top + height, left : left + width]


def flip(image: Image) -> Image:
    """Mirror left and right."""
    return image[:, :, ::-1]


# --- A batch, call by call -----------------------------------------------------------------------------------------


def batch_view(x: Tensor, parameters: ViewParameters) -> Tensor:
    """Augment a batch, (N, 3, H, W), with noise: every operation on its own, at the padded size."""
    _, _, height, width = x.shape
    x = x.clamp(0, 1)
    for kind in parameters.order:
        x = BATCH_JITTERS[kind](x, parameters.factors[kind])
    x = F.pad(x, (width // 2, width // 2, height // 2, height // 2), mode="replicate")
    x = batch_affine(x, parameters.angle, parameters.shift, parameters.scale)
    x = batch_blur(x, parameters.sigma)
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    x = x[:, :, top : top + height, left : left + width]
    x = x.flip(-1) if parameters.flip else x
    x = x + torch.randn(x.shape, dtype=x.dtype) * NOISE
    return x.clamp(0, 1)


def batch_grey(x: Tensor) -> Tensor:
    red, green, blue = x.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue).unsqueeze(1)


def batch_blend(x: Tensor, other: Tensor, factor: float) -> Tensor:
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def batch_brightness(x: Tensor, factor: float) -> Tensor:
    return batch_blend(x, torch.zeros_like(x), factor)


def batch_contrast(x: Tensor, factor: float) -> Tensor:
    return batch_blend(x, batch_grey(x).mean((1, 2, 3), keepdim=True), factor)


def batch_saturation(x: Tensor, factor: float) -> Tensor:
    return batch_blend(x, batch_grey(x), factor)


def batch_hue(x: Tensor, shift: float) -> Tensor:
    h, s, v = batch_rgb_to_hsv(x)
    return batch_hsv_to_rgb((h + shift) % 1.0, s, v)


def batch_gamma(x: Tensor, exponent: float) -> Tensor:
    return (x**exponent).clamp(0, 1)


BATCH_JITTERS: tuple[Callable[[Tensor, float], Tensor], ...] = (
    batch_brightness,
    batch_contrast,
    batch_saturation,
    batch_hue,
    batch_gamma,
)


def batch_rgb_to_hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation, value, (N, H, W) each."""
    red, green, blue = x.unbind(1)
    value, low = x.amax(1), x.amin(1)
    flat = value == low
    chroma = value - low
    ones = torch.ones_like(value)
    saturated = chroma / torch.where(flat, ones, value)
    divisor = torch.where(flat, ones, chroma)
    red_gap, green_gap, blue_gap = (value - red) / divisor, (value - green) / divisor, (value - blue) / divisor
    is_red = value == red
    is_green = (value == green) & ~is_red
    is_blue = ~is_red & ~is_green
    turn = (
        is_red * (blue_gap - green_gap) + is_green * (2.0 + red_gap - blue_gap) + is_blue * (4.0 + green_gap - red_gap)
    )
    return torch.fmod(turn / 6.0 + 1.0, 1.0), saturated, value


def batch_hsv_to_rgb(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    """(N, H, W) each to (N, 3, H, W): all six sextants are made, a mask picks one."""
    sextant = torch.floor(h * 6.0)
    rest = h * 6.0 - sextant
    p = (v * (1.0 - s)).clamp(0, 1)
    q = (v * (1.0 - s * rest)).clamp(0, 1)
    t = (v * (1.0 - s * (1.0 - rest))).clamp(0, 1)
    index = sextant.to(torch.int64) % 6
    mask = (index.unsqueeze(1) == torch.arange(6).view(1, 6, 1, 1)).to(v.dtype)  # (N, 6, H, W)
    channels = ((v, q, p, p, t, v), (t, v, v, q, p, p), (p, p, t, v, v, q))
    candidates = torch.stack([torch.stack(channel, 1) for channel in channels], 1)  # (N, 3, 6, H, W)
    return torch.einsum("nshw,ncshw->nchw", mask, candidates)


def batch_affine(x: Tensor, angle: float, shift: tuple[int, int], scale: float) -> Tensor:
    """Bilinear, zero outside."""
    _, _, height, width = x.shape
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    dx, dy = shift
    # Pixels to pixels, both measured from the centre; then both in units of half the size, as affine_grid wants.
    theta = torch.tensor(
        [
            [cos, sin * height / width, -(cos * dx + sin * dy) * 2 / width],
            [-sin * width / height, cos, (sin * dx - cos * dy) * 2 / height],
        ],
        dtype=x.dtype,
    )
    grid = F.affine_grid(theta[None], [1, *x.shape[1:]], align_corners=False).expand(len(x), -1, -1, -1)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def batch_blur(x: Tensor, sigma: float) -> Tensor:
    """A full 5x5 kernel, depthwise, on the reflected batch."""
    taps = torch.exp(-0.5 * (torch.linspace(-2, 2, 5, dtype=x.dtype) / sigma) ** 2)
    taps = taps / taps.sum()
    channels = x.shape[1]
    kernel = torch.outer(taps, taps).expand(channels, 1, 5, 5)
    return F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), kernel, groups=channels)
