"""ResNets of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, for ImageNet.

The layout is torchvision's: a bottleneck that halves the image does so in its 3x3 convolution.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _shortcut(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes)
        self.downsample = _shortcut(inputs, 4 * planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + self.downsample(x))


class ResNet(nn.Module):
    """A stem that quarters the image, and four stages."""

    def __init__(self, block: type[BasicBlock | Bottleneck], blocks: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        width = block.expansion
        self.layer1 = _stage(block, 64, 64, blocks[0], 1)
        self.layer2 = _stage(block, 64 * width, 128, blocks[1], 2)
        self.layer3 = _stage(block, 128 * width, 256, blocks[2], 2)
        self.layer4 = _stage(block, 256 * width, 512, blocks[3], 2)
        self.fc = nn.Linear(512 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet18(num_classes: int = 1000) -> ResNet:
    """Build a ResNet-18."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


def resnet50(num_classes: int = 1000) -> ResNet:
    """Build a ResNet-50."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes)


def _stage(block: type[BasicBlock | Bottleneck], inputs: int, planes: int, blocks: int, stride: int) -> nn.Sequential:
    later = (block(planes * block.expansion, planes, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(inputs, planes, stride), *later)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
