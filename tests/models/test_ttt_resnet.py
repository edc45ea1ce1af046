"""ResNet-26: layers and shortcuts."""

from __future__ import annotations

import torch
from torch import nn

from ctta.models import MODELS
from networks_by_name import on_meta, parameters


def test_resnet26_has_26_layers_and_no_weights_in_its_shortcuts() -> None:
    layers = [m for m in on_meta("resnet26").modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 26
    assert parameters(on_meta("resnet26")) == parameters(on_meta("resnet26_gn"))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in on_meta("resnet26_gn").modules())


def test_resnet26_shortcut_averages_and_adds_channels_at_the_end() -> None:
    block = MODELS["resnet26"].build().get_submodule("layer2.0")
    nn.init.zeros_(block.get_parameter("conv2.weight"))
    x = torch.rand(1, 16, 4, 4)
    out = block(x)
    torch.testing.assert_close(out[:, :16], nn.functional.avg_pool2d(x, 2))
    assert out[:, 16:].abs().sum() == 0
