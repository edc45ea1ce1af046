"""Masked autoencoders: a classifier as a triple of encoder, decoder and head, and what is masked.

encoder(x, keep)       tokens (N, 1 + K, D): one for the class, then those of the K patches in `keep`, (N, K), or all
decoder(tokens, keep)  the pixels of all P patches, (N, P, C p p)
head(features)         logits, from the first token, (N, D)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.base.randomness import Randomness


class MaskedAutoencoder(nn.Module):
    """Classifies images, and reconstructs them from some of their patches, `patch` pixels wide."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, head: nn.Module, patch: int) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head, self.patch = encoder, decoder, head, patch

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(x, None)[:, 0])
        return logits

    def reconstruction_loss(self, x: Tensor, keep: Tensor) -> Tensor:
        """Mean squared error per image, (N,), of the patches that are not kept, each of mean 0 and variance 1."""
        target = patches(x, self.patch)
        variance, mean = torch.var_mean(target, 2, keepdim=True)
        target = (target - mean) / (variance + 1e-6).sqrt()
        pixels: Tensor = self.decoder(self.encoder(x, keep), keep)
        error = (pixels - target).square().mean(2)  # (N, P)
        hidden = torch.ones_like(error).scatter(1, keep, 0.0)
        return (error * hidden).sum(1) / hidden.sum(1).clamp(min=1)


def patches(x: Tensor, size: int) -> Tensor:
    """The pixels of every patch, row by row, (N, C, H, W) to (N, P, C p p)."""
    return F.unfold(x, size, stride=size).transpose(1, 2)


def random_patches(images: int, total: int, share: float, random: Randomness) -> Tensor:
    """Which patches are kept, at random and at least one, (N, K)."""
    draws = torch.rand(images, total, dtype=torch.float32, generator=random.device, device=random.place)
    return draws.argsort(1)[:, : max(round(share * total), 1)]


def hide(x: Tensor, size: int, share: float, random: Randomness) -> Tensor:
    """Images, (N, C, H, W), of which only a random `share` of patches is left; clouds, (N, P, 3), of points.

    What is hidden takes the mean of what is left, so that nothing but its absence tells it.
    """
    if x.dim() == 4:
        rows, columns = (-(-side // size) for side in x.shape[2:])
        seen = _seen(len(x), rows * columns, share, random).view(len(x), 1, rows, columns)
        seen = seen.repeat_interleave(size, 2).repeat_interleave(size, 3)[:, :, : x.shape[2], : x.shape[3]]
    else:
        seen = _seen(len(x), x.shape[1], share, random).view(len(x), -1, *[1] * (x.dim() - 2))
    over = [2, 3] if x.dim() == 4 else [1]
    left = (x * seen).sum(over, keepdim=True) / seen.sum(over, keepdim=True).clamp(min=1)
    return torch.where(seen, x, left)


def _seen(images: int, total: int, share: float, random: Randomness) -> Tensor:
    kept = random_patches(images, total, share, random)
    return torch.zeros(images, total, dtype=torch.bool, device=kept.device).scatter(1, kept, True)
