"""Classifiers from torchvision: `torchvision:resnet50`, or one of its weights, `torchvision:resnet50.IMAGENET1K_V1`.

The only module that imports torchvision.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import ConfigError, InputError, nearest
from ctta.base.fileio import optional_import
from ctta.base.text import quoted
from ctta.models.entry import ModelEntry
from ctta.models.weights import read_state


def entry(name: str) -> ModelEntry:
    """Return the entry of a model, read from the description of its weights."""
    models = optional_import("torchvision.models", "torchvision", "This model")
    architecture, _, tag = name.partition(".")
    known = models.list_models(module=models)
    if architecture not in known:
        raise ConfigError(f"torchvision has no classifier {quoted(architecture)}. {nearest(architecture, known)}")
    choices = models.get_model_weights(architecture)
    if tag and tag not in choices.__members__:
        raise ConfigError(f"{architecture} has no weights {quoted(tag)}. {nearest(tag, choices.__members__)}")
    weights = choices[tag] if tag else choices.DEFAULT
    transform = weights.transforms()
    return ModelEntry(
        builder=partial(_build, models, architecture),
        num_classes=len(weights.meta["categories"]),
        mean=tuple(transform.mean),
        std=tuple(transform.std),
        input_size=transform.crop_size[0],
        note=f"torchvision, {weights}",
        source=f"torchvision keeps them at {weights.url}.",
        pretrained=partial(_cached, weights.url),
    )


def _build(models: Any, architecture: str, num_classes: int) -> nn.Module:
    old = {"init_weights": False} if architecture in ("googlenet", "inception_v3") else {}
    model: nn.Module = models.get_model(architecture, weights=None, num_classes=num_classes, **old)
    if old:
        model.transform_input = True  # type: ignore[assignment]  # their weights need another normalisation
    return model


def _cached(url: str) -> dict[str, Tensor]:
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if not path.is_file():
        raise InputError(
            f"The weights are not in the local cache, and nothing is downloaded. Fetch {url}, then put it at {path} or "
            "give weights=path."
        )
    return read_state(path)
