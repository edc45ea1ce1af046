"""ResNets of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, for ImageNet.

The layout is torchvision's: a bottleneck that halves the image does so in its 3x3 convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

Block: TypeAlias = Callable[[int, int, int], nn.Module]  # takes the channels of input and output, and the stride


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + self.downsample(x))


class ResNet(nn.Module):
    """A stem that quarters the image, and four stages."""

    def __init__(self, block: Block, width: int, blocks: tuple[int, ...], num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = stage(block, 64, width, blocks[0], 1)
        self.layer2 = stage(block, width, 2 * width, blocks[1], 2)
        self.layer3 = stage(block, 2 * width, 4 * width, blocks[2], 2)
        self.layer4 = stage(block, 4 * width, 8 * width, blocks[3], 2)
        self.fc = nn.Linear(8 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def stage(block: Block, inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    """Build a row of blocks, the first of which changes the number of channels and the size of the image."""
    later = (block(outputs, outputs, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(inputs, outputs, stride), *later)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Build a 1x1 convolution and its norm layer if the shape changes, otherwise nothing."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
