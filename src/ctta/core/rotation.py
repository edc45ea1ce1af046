"""Rotation as a task without labels: by which of four quarter turns was a sample rotated?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.base.errors import InputError
from ctta.base.limits import WIDTH

TURNS = 4
NAME = "rotation_head"  # in the classifier's last layer, of a model that was trained with it


class RotationHead(nn.Module):
    """Logits of the four turns, from features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(TURNS, width))
        self.bias = nn.Parameter(torch.zeros(TURNS))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)

    def loss(self, features: Tensor) -> Tensor:
        """Cross-entropy, of the features of `quarter_turns`."""
        turn = torch.arange(TURNS, device=features.device).repeat_interleave(len(features) // TURNS)
        return F.cross_entropy(self(features), turn)


def attach(layer: nn.Module, width: int) -> None:
    """Put a head into a classifier's last layer, beside its own parameters: there it is in nobody's way."""
    if not hasattr(layer, NAME):
        layer.add_module(NAME, RotationHead(width))


def attach_saved(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put heads where saved weights have them."""
    ending = f".{NAME}.weight"
    layers = dict(model.named_modules())
    for key, weight in state.items():
        if key.endswith(ending) and weight.dim() == 2 and (layer := layers.get(key.removesuffix(ending))):
            attach(layer, min(weight.shape[1], WIDTH))


def quarter_turns(x: Tensor) -> Tensor:
    """All four rotations of a batch, one after the other: images in their plane, point clouds about the y axis."""
    if x.dim() == 3 and x.shape[2] == 3:
        side, up, depth = x.unbind(2)
        turned = ((side, up, depth), (depth, up, -side), (-side, up, -depth), (-depth, up, side))
        return torch.cat([torch.stack(axes, 2) for axes in turned])
    if x.dim() != 4 or x.shape[2] != x.shape[3]:
        raise InputError(
            f"Quarter turns are for square images, (N, C, H, H), and for point clouds, (N, P, 3). Got {tuple(x.shape)}."
        )
    return torch.cat([x.rot90(turn, (2, 3)) for turn in range(TURNS)])
