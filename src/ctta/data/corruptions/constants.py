"""The 19 image corruptions and their constants, as data; a comment per corruption names its constants."""

from __future__ import annotations

from collections.abc import Mapping

from ctta.base.image_size import is_large

PAPER = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog"),
    *("brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
"""The fifteen corruptions in the order of the paper's columns, which is the continual order."""
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four held-out corruptions of the public sets."""
NAMES = PAPER + EXTRA
GROUPS: Mapping[str, tuple[str, ...]] = {"paper": PAPER, "extra": EXTRA, "all": NAMES}
PRESETS = ("cifar", "imagenet")

# preset -> name -> one tuple of constants per severity, in the order of the function's arguments.
CONSTANTS: Mapping[str, Mapping[str, tuple[tuple[float, ...], ...]]] = {
    "cifar": {
        "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),  # std
        "shot_noise": ((500,), (250,), (100,), (75,), (50,)),  # photons at full brightness
        "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),  # share of values
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, sigma of the antialiasing
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),  # sigma, delta, rounds
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, sigma
        "zoom_blur": ((7, 0.01), (12, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)),  # number of zooms, step
        "snow": (  # mean, std, zoom, threshold, radius, sigma, mix
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        # image weight, frost weight, one texture pixel kept in this many
        "frost": ((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
        # strength, decay, smallest plasma map
        "fog": ((0.2, 3, 32), (0.5, 3, 32), (0.75, 2.5, 32), (1, 2, 32), (1.5, 1.75, 32)),
        "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),  # shift of V
        "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),  # scale around the mean
        "elastic_transform": (  # alpha, sigma, affine; then what all three are multiples of, in sides of the image
            (0, 0, 0.08, 1),
            (0.05, 0.2, 0.07, 1),
            (0.08, 0.06, 0.06, 1),
            (0.1, 0.04, 0.05, 1),
            (0.1, 0.03, 0.03, 1),
        ),
        "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),  # scale
        "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),  # quality
        "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),  # std relative to the value
        "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),  # sigma
        "spatter": (  # mean, std, sigma, threshold, strength, mud
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),  # scale and shift of S
    },
    "imagenet": {
        "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
        "shot_noise": ((60,), (25,), (12,), (5,), (3,)),
        "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03)),
        "snow": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        "fog": ((1.5, 2, 256), (2, 2, 256), (2.5, 1.7, 256), (2.5, 1.5, 256), (3, 1.4, 256)),
        "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
        "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
        "elastic_transform": (  # the public code has 244, not 224
            (2, 0.7, 0.1, 244 / 224),
            (2, 0.08, 0.2, 244 / 224),
            (0.05, 0.01, 0.02, 244 / 224),
            (0.07, 0.01, 0.02, 244 / 224),
            (0.12, 0.01, 0.02, 244 / 224),
        ),
        "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
        "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),
        "speckle_noise": ((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
        "gaussian_blur": ((1,), (2,), (3,), (4,), (6,)),
        "spatter": (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
}


def preset_for(height: int, width: int) -> str:
    """Return the set of constants for images of this size."""
    return "imagenet" if is_large(height, width) else "cifar"
