"""What a model of another package says about its images: mean, standard deviation and size.

timm keeps it in `model.pretrained_cfg`; Hugging Face in an image processor, which a factory returns with its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from ctta.core.networks import Normalized


@dataclass(frozen=True)
class Preprocessing:
    """How images were prepared in training."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int | None = None  # pixels per side


def of_timm(model: nn.Module) -> Preprocessing | None:
    """From the configuration that timm leaves on its models; None on others."""
    config = getattr(model, "pretrained_cfg", None)
    if not isinstance(config, Mapping) or not {"mean", "std"} <= config.keys():
        return None
    size = config.get("input_size")
    return Preprocessing(tuple(config["mean"]), tuple(config["std"]), size[-1] if size else None)


def of_processor(processor: Any) -> Preprocessing:
    """From an image processor of Hugging Face, or from the content of its preprocessor_config.json."""
    images = processor if isinstance(processor, Mapping) else processor.to_dict()
    normalized = images.get("do_normalize", True)
    if normalized and not {"image_mean", "image_std"} <= images.keys():
        raise ValueError("the image processor gives no image_mean and image_std")
    size = images.get("crop_size") or images.get("size")
    if isinstance(size, Mapping):
        size = size.get("height") or size["shortest_edge"]
    mean = tuple(images["image_mean"]) if normalized else (0.0, 0.0, 0.0)
    return Preprocessing(mean, tuple(images["image_std"]) if normalized else (1.0, 1.0, 1.0), size)


def known_size(model: nn.Module) -> int | None:
    """The size of the images that a model was trained on, if its preprocessing says so."""
    return next((part.size for part in model.modules() if isinstance(part, Normalized) and part.size), None)


def is_normalized(model: nn.Module) -> bool:
    """Whether a normalisation is known to be inside."""
    return any(isinstance(part, Normalized) for part in model.modules())
