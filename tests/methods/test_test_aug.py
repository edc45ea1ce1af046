"""Test Aug: the mean over augmented views."""

from __future__ import annotations

import torch

import ctta
from ctta import TestAug
from ctta.base.randomness import Randomness
from ctta.testing.networks import make_batch, make_network
from plain import with_batch_statistics


def test_the_prediction_is_the_mean_over_augmented_views():
    network, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    adapter, reference = TestAug(network, preset="paper", views=3, seed=5), with_batch_statistics(network)
    random = Randomness(5, 0, x.device)
    views = [ctta.views.ImageViews("batch")(x, random) for _ in range(3)]
    with torch.no_grad():
        torch.testing.assert_close(adapter(x), sum(reference(view) for view in views) / 3)
