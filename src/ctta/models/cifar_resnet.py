"""CIFAR ResNets of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016: 20, 32, 44, 56 and 110 layers.

Two public layouts of the same network:

    option A   a shortcut that changes shape takes every second pixel and pads channels with zeros; the head is `linear`
    option B   such a shortcut is a 1x1 convolution, `downsample`; the head is `fc`
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ctta.models.resnet import BasicBlock, stage


class PaddedBlock(BasicBlock):
    """A block with the shortcut of option A."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        if stride != 1:
            self.downsample = ZeroPadShortcut(outputs // 4)


class ZeroPadShortcut(nn.Module):
    """Takes every second pixel and adds `pad` channels of zeros on both sides."""

    def __init__(self, pad: int) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))


class CifarResNet(nn.Module):
    """6n + 2 layers on 32x32 images."""

    def __init__(self, depth: int, num_classes: int = 10, shortcut: Literal["A", "B"] = "A") -> None:
        super().__init__()
        block, self.head = (PaddedBlock, "linear") if shortcut == "A" else (BasicBlock, "fc")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(block, 16, 16, blocks, 1)
        self.layer2 = stage(block, 16, 32, blocks, 2)
        self.layer3 = stage(block, 32, 64, blocks, 2)
        self.add_module(self.head, nn.Linear(64, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.get_submodule(self.head)(x.mean((2, 3)))
        return logits
