"""Wide ResNets of Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016, for 32x32 images.

The layout is RobustBench's: activation comes first in a block, also before a shortcut that changes shape.
"""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from ctta.models.resnet import stage


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


class WideResNet(nn.Module):
    """6n + 4 layers, with `width` times the channels of a CIFAR ResNet."""

    def __init__(self, depth: int, width: int, num_classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = _stage(16, 16 * width, blocks, 1)
        self.block2 = _stage(16 * width, 32 * width, blocks, 2)
        self.block3 = _stage(32 * width, 64 * width, blocks, 2)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        logits: Tensor = self.fc(F.relu(self.bn1(x)).mean((2, 3)))
        return logits


def _stage(inputs: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layer=stage(Block, inputs, channels, blocks, stride)))  # named as in checkpoints
