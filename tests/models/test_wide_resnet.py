"""Wide ResNets: depth, width and shortcuts."""

from __future__ import annotations

import torch
from torch import nn

from ctta.models.wide_resnet import WideResNet


def test_layers_and_widths() -> None:
    with torch.device("meta"):
        model = WideResNet(16, 4, 7)
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    shortcuts = [module for name, module in model.named_modules() if name.endswith("convShortcut")]
    assert len(convolutions) - len(shortcuts) + 1 == 14  # 6n + 4 layers, three of them the shortcuts of the stages
    assert len(shortcuts) == 3
    assert model.fc.in_features == 256


def test_a_shortcut_without_convolution_adds_the_input() -> None:
    block = WideResNet(16, 1).block1.layer[1].eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4)
    assert torch.equal(block(x), x)
