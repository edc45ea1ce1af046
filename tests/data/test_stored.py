"""Stored domains: samples and labels by row."""

from __future__ import annotations

import numpy as np

from ctta.data.stored import StoredDomain


def test_rows_in_any_order():
    images = np.arange(4, dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    domain = StoredDomain("fog", 5, images, np.array([3, 1, 2, 0]))
    samples, labels = domain.load(np.array([2, 0]))
    assert (len(domain), samples[:, 0, 0, 0].tolist(), labels.tolist()) == (4, [2, 0], [2, 3])
