"""CIFAR ResNets: shortcuts without weights."""

from __future__ import annotations

import torch

from ctta.models.cifar_resnet import CifarResNet


def test_shortcut_without_weights_keeps_the_channels_in_the_middle() -> None:
    shortcut = CifarResNet(20).get_submodule("layer2.0.downsample")
    x = torch.rand(1, 16, 4, 4)
    out = shortcut(x)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert out[:, :8].abs().sum() + out[:, 24:].abs().sum() == 0
