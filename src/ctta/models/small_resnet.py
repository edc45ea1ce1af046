"""A small BatchNorm ResNet for 32x32 images, designed to be fast on a CPU.

The stem halves the image, so that every block works on 16x16 or less. The weights in `assets/` were trained on
Fashion-MNIST by `scripts/train_embedded.py`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.models.resnet import shortcut

WIDTHS = (16, 64, 128)  # multiples of 16 fill a vector register


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = shortcut(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """Images (N, 3, 32, 32) in [0, 1] to logits (N, C).

    Mean and standard deviation of the input are buffers, saved with the weights. A new model has 0 and 1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 3, 1, 1))
        self.register_buffer("std", torch.ones(1, 3, 1, 1))
        first, second, third = WIDTHS
        self.stem = nn.Sequential(nn.Conv2d(3, first, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(first))
        self.blocks = nn.Sequential(
            Block(first, first, stride=1),  # (N, 16, 16, 16)
            Block(first, second, stride=2),  # (N, 64, 8, 8)
            Block(second, third, stride=2),  # (N, 128, 4, 4)
        )
        self.fc = nn.Linear(third, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem((x - self.mean) / self.std))
        features = self.blocks(x).mean((2, 3))  # (N, 128)
        logits: Tensor = self.fc(features)
        return logits
