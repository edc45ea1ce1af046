"""ResNeXt-29 of Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", CVPR 2017.

This is the network for 32x32 images. Layout and size (4 groups, base width 32) are those that AugMix trains.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ctta.models.resnet import shortcut, stage


class Bottleneck(nn.Module):
    """1x1, grouped 3x3 and 1x1 convolutions, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 2
        self.conv_reduce = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(inner)
        self.conv_conv = nn.Conv2d(inner, inner, 3, stride, 1, groups=4, bias=False)
        self.bn = nn.BatchNorm2d(inner)
        self.conv_expand = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn_reduce(self.conv_reduce(x)))
        out = F.relu(self.bn(self.conv_conv(out)))
        return F.relu(self.bn_expand(self.conv_expand(out)) + self.downsample(x))


class ResNeXt29(nn.Module):
    """Three stages of three bottlenecks."""

    def __init__(self, num_classes: int = 100) -> None:
        super().__init__()
        self.conv_1_3x3 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn_1 = nn.BatchNorm2d(64)
        self.stage_1 = stage(Bottleneck, 64, 256, 3, 1)
        self.stage_2 = stage(Bottleneck, 256, 512, 3, 2)
        self.stage_3 = stage(Bottleneck, 512, 1024, 3, 2)
        self.classifier = nn.Linear(1024, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn_1(self.conv_1_3x3(x)))
        x = self.stage_3(self.stage_2(self.stage_1(x)))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits
