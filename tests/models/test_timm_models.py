"""Models from timm: entry, weights, and what is missing."""

from __future__ import annotations

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


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with timm's interface and one model; its hub knows no cached file."""
    config = SimpleNamespace(num_classes=10, hf_hub_id="timm/tiny", to_dict=dict)
    timm: Any = ModuleType("timm")
    timm.__version__, timm.is_model = "1.0", lambda name: name == "tiny"
    timm.get_pretrained_cfg = lambda name: config
    timm.create_model = lambda name, pretrained, num_classes: MODELS["cifar_resnet20"].build(num_classes)
    data: Any = ModuleType("timm.data")
    data.resolve_data_config = lambda pretrained_cfg: {
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
        "input_size": (3, 96, 96),
    }
    hub: Any = ModuleType("huggingface_hub")
    hub.try_to_load_from_cache = lambda repository, file: None
    for module in (timm, data, hub):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_package_gives_its_own_metadata(fake_timm: None, model: nn.Module, state: State, path: Path) -> None:
    entry = find("timm:tiny")
    assert (entry.num_classes, entry.mean, entry.std, entry.input_size) == (10, (0.5,) * 3, (0.25,) * 3, 96)
    torch.save(state, path)
    assert same(load("timm:tiny", weights=path), model, [0.5] * 3, [0.25] * 3)
    with pytest.raises(ConfigError, match="weights='pretrained'"):
        load("timm:tiny")
    with pytest.raises(InputError, match="not in the local cache"):
        load("timm:tiny", weights="pretrained")
    with pytest.raises(ConfigError, match="no model 'other'"):
        load("timm:other")
