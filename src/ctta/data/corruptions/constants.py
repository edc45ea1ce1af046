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

# name -> preset -> one tuple of constants per severity, in the order of the function's arguments.
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


def preset_for(height: int, width: int) -> str:
    """Return the set of constants for images of this size."""
    return "imagenet" if is_large(height, width) else "cifar"
