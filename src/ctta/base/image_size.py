"""What counts as a large image: the one rule by which settings, corruption constants and augmentations are chosen."""

from __future__ import annotations

LARGE_IMAGE = 64  # pixels; an image with a longer side is large and gets the ImageNet settings, others the CIFAR ones


def is_large(height: int, width: int) -> bool:
    """Whether an image of this size is treated as an ImageNet image instead of a CIFAR image."""
    return max(height, width) > LARGE_IMAGE
