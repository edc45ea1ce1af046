"""The embedded Fashion-MNIST test set."""

from __future__ import annotations

import numpy as np

from ctta.data.datasets.embedded import fashion_mnist


def test_the_embedded_set():
    images, labels, classes = fashion_mnist()
    assert (images.shape, images.dtype) == ((10_000, 32, 32, 3), np.uint8)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert len(classes) == 10
    assert (images[:, :2] == 0).all()
    assert (images[..., 0] == images[..., 2]).all()
