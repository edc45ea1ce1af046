"""Wide ResNets of Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016, for 32x32 images.

The layout is RobustBench's: activation comes first in a block, also before a shortcut that changes shape.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Norm, ReLU and 3x3 convolution, twice, and a shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        # The name is that in the checkpoints.
        self.convShortcut = nn.Conv2d(inputs, channels, 1, stride, bias=False) if inputs != channels else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        out: Tensor = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return shortcut + out


class Stage(nn.Module):
    """Blocks of one width."""

    def __init__(self, inputs: int, channels: int, blocks: int, stride: int) -> None:
        super().__init__()
        first = Block(inputs, channels, stride)
        self.layer = nn.Sequential(first, *(Block(channels, channels, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class WideResNet(nn.Module):
    """6n + 4 layers, with `width` times the channels of a CIFAR ResNet."""

    def __init__(self, depth: int, width: int, num_classes: int) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = Stage(16, 16 * width, blocks, 1)
        self.block2 = Stage(16 * width, 32 * width, blocks, 2)
        self.block3 = Stage(32 * width, 64 * width, blocks, 2)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        logits: Tensor = self.fc(F.relu(self.bn1(x)).mean((2, 3)))
        return logits


def wide_resnet(depth: int = 28, width: int = 10, num_classes: int = 10) -> WideResNet:
    """Build a Wide ResNet, by default WRN-28-10."""
    return WideResNet(depth, width, num_classes)
