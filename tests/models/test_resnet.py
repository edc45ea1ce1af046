"""ImageNet ResNets: strides and shortcuts."""

from __future__ import annotations

import torch
from torch import nn

from networks_by_name import on_meta


def test_the_stem_quarters_the_image_and_each_later_stage_halves_it() -> None:
    model = on_meta("resnet18")
    sizes = []
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        stage.register_forward_hook(lambda module, args, out: sizes.append(tuple(out.shape[1:])))
    model(torch.empty(1, 3, 64, 64, device="meta"))
    assert sizes == [(64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2)]


def test_a_bottleneck_halves_the_image_in_its_middle_convolution() -> None:
    block = on_meta("resnet50").layer2[0]
    assert [block.get_submodule(name).stride for name in ("conv1", "conv2", "conv3")] == [(1, 1), (2, 2), (1, 1)]
    assert isinstance(block.downsample, nn.Sequential)
