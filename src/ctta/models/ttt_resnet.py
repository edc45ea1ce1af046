"""ResNet-26 of Sun et al., "Test-Time Training with Self-Supervision", ICML 2020, for 32x32 images.

Activation comes first in a block. A shortcut that changes shape averages 2x2 pixels and appends channels of zeros, so
it has no weights. The norm layers are BatchNorm, or GroupNorm, which the paper's own results use.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from ctta.models.resnet import stage


class Block(nn.Module):
    """Norm, ReLU and 3x3 convolution, twice, and a shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int, groups: int | None) -> None:
        super().__init__()
        self.bn1 = _norm(inputs, groups)
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn2 = _norm(channels, groups)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.stride, self.added = stride, channels - inputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        if self.stride != 1:
            x = F.avg_pool2d(x, self.stride)
        return out + F.pad(x, (0, 0, 0, 0, 0, self.added))


class ResNet26(nn.Module):
    """Three stages of four blocks, with BatchNorm, or with GroupNorm of `groups` groups."""

    def __init__(self, num_classes: int = 10, groups: int | None = None) -> None:
        super().__init__()
        block = partial(Block, groups=groups)
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.layer1 = stage(block, 16, 16, 4, 1)
        self.layer2 = stage(block, 16, 32, 4, 2)
        self.layer3 = stage(block, 32, 64, 4, 2)
        self.bn = _norm(64, groups)
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        logits: Tensor = self.fc(F.relu(self.bn(x)).mean((2, 3)))
        return logits


def _norm(channels: int, groups: int | None) -> nn.Module:
    return nn.BatchNorm2d(channels) if groups is None else nn.GroupNorm(groups, channels)
