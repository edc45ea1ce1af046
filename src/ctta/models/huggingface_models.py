"""Image classifiers in transformers' format: `hf:microsoft/resnet-50`, or a local folder, `hf:path/to/folder`.

The only module that imports transformers. It reads the local cache only. `weights="pretrained"` loads the weights of
the folder through transformers, which converts old names of tensors; a file of weights must have the current names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ctta.base.errors import InputError, ModelError
from ctta.base.fileio import optional_import
from ctta.models.entry import ModelEntry


class Logits(nn.Module):
    """A transformers classifier that returns the logits only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


def entry(name: str) -> ModelEntry:
    """Return the entry of a model, read from its config.json and preprocessor_config.json."""
    transformers = optional_import("transformers", "huggingface", "This model")
    config = _local(name, transformers.AutoConfig.from_pretrained)
    path = _local(
        name, optional_import("transformers.utils", "huggingface", "This model").cached_file, "preprocessor_config.json"
    )
    images = json.loads(Path(path).read_text())
    normalized = images.get("do_normalize", True)
    if normalized and not {"image_mean", "image_std"} <= images.keys():
        raise InputError(f"{path} gives no image_mean and image_std. Write them into it.")
    size = images.get("crop_size") or images.get("size", getattr(config, "image_size", 224))
    if isinstance(size, Mapping):
        size = size.get("height") or size["shortest_edge"]
    return ModelEntry(
        builder=partial(_build, transformers, config),
        num_classes=config.num_labels,
        mean=tuple(images["image_mean"]) if normalized else (0.0, 0.0, 0.0),
        std=tuple(images["image_std"]) if normalized else (1.0, 1.0, 1.0),
        input_size=size,
        note=f"transformers {transformers.__version__}",
        source=f"weights='pretrained' loads those of {name}.",
        pretrained=partial(_cached, transformers, name),
    )


def _build(transformers: Any, config: Any, num_classes: int) -> nn.Module:
    config.num_labels = num_classes
    return Logits(transformers.AutoModelForImageClassification.from_config(config)).float()


def _cached(transformers: Any, name: str) -> Mapping[str, Tensor]:
    read = partial(transformers.AutoModelForImageClassification.from_pretrained, output_loading_info=True)
    model, report = _local(name, read)
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{name} has no weights for {', '.join(missing[:3])}: transformers would initialise them at random. "
            "Choose a model that was trained as a classifier."
        )
    return Logits(model).state_dict()


def _local(name: str, read: Callable[..., Any], *arguments: str) -> Any:
    try:
        return read(name, *arguments, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{name} is not completely in the local cache, and nothing is downloaded. Run `hf download {name}`, or "
            "give the path of a folder that holds config.json, preprocessor_config.json and the weights."
        ) from error
