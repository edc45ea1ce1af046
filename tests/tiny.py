"""Models that an experiment's `factory:` can name, small enough for tests that start many processes."""

from __future__ import annotations

import torch
from torch import nn


def network() -> nn.Module:
    """A small BatchNorm network with fixed random weights, ten classes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        )


def without_norm() -> nn.Module:
    """A network without norm layers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 10))
