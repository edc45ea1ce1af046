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
from ctta.models.preprocessing import of_processor


class Logits(nn.Module):
    """A transformers classifier that returns the logits only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        answer = self.model(x)
        logits: Tensor = getattr(answer, "logits", answer)
        return logits


def entry(name: str) -> ModelEntry:
    """Return the entry of a model, read from its config.json and preprocessor_config.json."""
    transformers = optional_import("transformers", "huggingface", "This model")
    config = _local(name, transformers.AutoConfig.from_pretrained)
    path = _local(
        name, optional_import("transformers.utils", "huggingface", "This model").cached_file, "preprocessor_config.json"
    )
    try:
        images = of_processor(json.loads(Path(path).read_text()))
    except ValueError as error:
        raise InputError(f"{path} cannot be used: {error}. Write them into it.") from error
    return ModelEntry(
        builder=partial(_build, transformers, config),
        num_classes=config.num_labels,
        mean=images.mean,
        std=images.std,
        input_size=images.size or int(getattr(config, "image_size", 224)),
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
