"""The small masked autoencoder: its parts fit, and both tasks have a gradient."""

from __future__ import annotations

import torch

from ctta.models.vit_mae import PATCHES, ViTMAE


def test_logits_and_reconstruction():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = ViTMAE(7), torch.rand(3, 3, 32, 32)
        logits, penalty = model.regularized(x)
    assert logits.shape == (3, 7)
    torch.testing.assert_close(logits, model(x))
    (logits.sum() + penalty).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_all_patches_in_any_order_are_the_image():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = ViTMAE(7).eval(), torch.rand(2, 3, 32, 32)
        order = torch.rand(2, PATCHES).argsort(1)
    torch.testing.assert_close(model.encoder(x, order)[:, 0], model.encoder(x)[:, 0], atol=1e-5, rtol=1e-4)
