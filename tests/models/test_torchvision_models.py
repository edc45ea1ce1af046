"""Models from torchvision: entry, weights in its cache, and what is missing."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ctta.base.errors import ConfigError, InputError
from ctta.models import MODELS, load
from ctta.models.load import find
from saved_weights import State, same


class Weights(enum.Enum):
    """As torchvision describes the weights of one model."""

    V1 = "https://host/tiny-1.pth"
    DEFAULT = V1

    @property
    def url(self) -> str:
        return self.value

    @property
    def meta(self) -> dict[str, Any]:
        return {"categories": list("abcdefghij")}

    def transforms(self) -> Any:
        return SimpleNamespace(mean=[0.5] * 3, std=[0.25] * 3, crop_size=[96])


@pytest.fixture
def fake_torchvision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package with torchvision's interface and one model; gives the folder of its cache."""
    models: Any = ModuleType("torchvision.models")
    models.list_models = lambda module: ["tiny"]
    models.get_model_weights = lambda name: Weights
    models.get_model = lambda name, weights, num_classes: MODELS["cifar_resnet20"].build(num_classes)
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    return tmp_path / "checkpoints"


def test_torchvision(fake_torchvision: Path, model: nn.Module, state: State) -> None:
    entry = find("torchvision:tiny.V1")
    assert (entry.num_classes, entry.mean, entry.std, entry.input_size) == (10, (0.5,) * 3, (0.25,) * 3, 96)
    with pytest.raises(InputError, match=r"not in the local cache.*Fetch https://host/tiny-1\.pth"):
        load("torchvision:tiny", weights="pretrained")
    fake_torchvision.mkdir()
    torch.save(state, fake_torchvision / "tiny-1.pth")
    assert same(load("torchvision:tiny", weights="pretrained"), model, [0.5] * 3, [0.25] * 3)
    with pytest.raises(ConfigError, match=r"no classifier 'tinny'\. Did you mean 'tiny'"):
        find("torchvision:tinny")
    with pytest.raises(ConfigError, match="tiny has no weights 'V9'"):
        find("torchvision:tiny.V9")
