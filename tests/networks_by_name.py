"""Networks of the table of models, without memory for their weights."""

from __future__ import annotations

import torch
from torch import nn

from ctta.models import MODELS


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name].build()


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
