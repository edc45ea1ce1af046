"""CIFAR ResNets of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016: 20, 32, 44, 56 and 110 layers.

Two public layouts of the same network:

    option A   a shortcut that changes shape takes every second pixel and pads channels with zeros; the head is `linear`
    option B   such a shortcut is a 1x1 convolution, `downsample`; the head is `fc`
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Shortcut = Literal["A", "B"]


class ZeroPadShortcut(nn.Module):
    """Takes every second pixel and adds channels of zeros on both sides."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pad = channels // 4

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        path: nn.Module = nn.Identity()
        if stride != 1 or inputs != channels:
            convolution = nn.Conv2d(inputs, channels, 1, stride, bias=False)
            path = (
                ZeroPadShortcut(channels) if shortcut == "A" else nn.Sequential(convolution, nn.BatchNorm2d(channels))
            )
        self.downsample = path

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]


class CifarResNet(nn.Module):
    """6n + 2 layers on 32x32 images."""

    def __init__(self, depth: int, num_classes: int, shortcut: Shortcut) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(16, 16, blocks, 1, shortcut)
        self.layer2 = _stage(16, 32, blocks, 2, shortcut)
        self.layer3 = _stage(32, 64, blocks, 2, shortcut)
        self.head = "linear" if shortcut == "A" else "fc"
        self.add_module(self.head, nn.Linear(64, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.get_submodule(self.head)(x.mean((2, 3)))
        return logits


def cifar_resnet(depth: int, num_classes: int = 10, shortcut: Shortcut = "A") -> CifarResNet:
    """Build a CIFAR ResNet of 20, 32, 44, 56 or 110 layers."""
    return CifarResNet(depth, num_classes, shortcut)


def _stage(inputs: int, channels: int, blocks: int, stride: int, shortcut: Shortcut) -> nn.Sequential:
    first = Block(inputs, channels, stride, shortcut)
    return nn.Sequential(first, *(Block(channels, channels, 1, shortcut) for _ in range(blocks - 1)))
