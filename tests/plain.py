"""Plain torch, as the field's public code is written: what methods are compared with."""

from __future__ import annotations

import copy

import torch
from torch import nn


def with_batch_statistics(network: nn.Module) -> nn.Module:
    """The way the field's public code does it: forget the running statistics."""
    network = copy.deepcopy(network).eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.train()
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None
    return network


def identity_views(x: torch.Tensor, random: object) -> torch.Tensor:
    """Views that leave the batch as it is, so that a random method is not."""
    return x.clone()


def norm_weights(network: nn.Module) -> list[nn.Parameter]:
    """Of the BatchNorm layers."""
    return [p for layer in network.modules() if isinstance(layer, nn.BatchNorm2d) for p in (layer.weight, layer.bias)]


def cross_entropies(target: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """One value a sample, in loops."""
    rows = []
    for t, z in zip(target.softmax(1), logits, strict=True):
        total = z.exp().sum()
        rows.append(-sum(t[c] * (z[c].exp() / total).log() for c in range(len(z))))
    return torch.stack(rows)
