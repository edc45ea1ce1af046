"""How a loaded network compares with the one that was saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ctta.models import MODELS

State = dict[str, Tensor]


def same(loaded: nn.Module, model: nn.Module, mean: Any = None, std: Any = None) -> bool:
    entry = MODELS["cifar_resnet20"]
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (mean or entry.mean, std or entry.std))
    x = torch.rand(2, 3, 32, 32)
    return torch.equal(loaded(x), model((x - mean) / std))


def prefixed(state: State, prefix: str) -> State:
    return {prefix + key: value for key, value in state.items()}
