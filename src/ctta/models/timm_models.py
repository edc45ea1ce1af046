"""Models from timm, by its names: `timm:resnet18`, `timm:resnet50.tv_in1k`. The only module that imports timm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ctta.base.errors import ConfigError, InputError
from ctta.base.fileio import optional_import
from ctta.base.hub import cached
from ctta.base.text import quoted
from ctta.models.entry import ModelEntry

FILES = ("model.safetensors", "pytorch_model.bin")


def entry(name: str) -> ModelEntry:
    """Return the entry of a model, read from the configuration in timm."""
    timm = optional_import("timm", "timm", "This model")
    if not timm.is_model(name):
        raise ConfigError(
            f"timm {timm.__version__} has no model {quoted(name)}. timm.list_models('*part*') lists its names."
        )
    config = timm.get_pretrained_cfg(name)
    data = optional_import("timm.data", "timm", "This model").resolve_data_config(pretrained_cfg=config.to_dict())
    return ModelEntry(
        builder=partial(timm.create_model, name, pretrained=False),
        num_classes=config.num_classes,
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        input_size=data["input_size"][-1],
        note=f"timm {timm.__version__}",
        source=f"timm keeps its weights at https://huggingface.co/{config.hf_hub_id}.",
        pretrained=partial(_cached, timm, name, config.hf_hub_id),
    )


def _cached(timm: Any, name: str, repository: str) -> Mapping[str, Tensor]:
    for file in FILES:
        if path := cached(repository, file, "timm"):
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": path})
            state: Mapping[str, Tensor] = model.state_dict()
            return state
    raise InputError(
        f"The weights of timm:{name} are not in the local cache, and nothing is downloaded. Fetch them once with "
        f"`hf download {repository}`, or give weights=path."
    )
