"""A stream of three corruptions of 23 small images."""

from __future__ import annotations

import numpy as np

from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data
from ctta.data.stream import Stream

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(23) % 5
DOMAINS = [("gaussian_noise", 5), ("fog", 3), ("contrast", 1)]


def make(**changes) -> Stream:
    return corrupted_stream(IMAGES, LABELS, DOMAINS, Data(**{"batch": 10, **changes}))
