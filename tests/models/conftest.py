"""A small network, its state, and a path for its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ctta.models import MODELS


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    model = MODELS["cifar_resnet20"].build().eval()
    for value in model.state_dict().values():
        if value.dim() == 1:
            value.add_(torch.rand_like(value))
    return model


@pytest.fixture(scope="module")
def state(model: nn.Module) -> dict[str, Tensor]:
    return model.state_dict()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"
