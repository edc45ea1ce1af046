"""Settings that several methods share, presets by name, and what a method says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ctta.base.config import Config, setting
from ctta.base.errors import ConfigError, nearest
from ctta.base.image_size import is_large
from ctta.base.text import quoted

PAPER = "paper"  # the variant that adds nothing to a preset
AUTO = "auto"  # the variant that is safe for any stream; the default of methods with a choice of statistics
ASSUMED_SHAPE = (1, 3, 32, 32)  # of batches, until the first one is known
FORMER = {"lean": "fast", "weighed": "fast"}  # variants that had another name

Presets = Mapping[str, Mapping[str, Any]]  # fields by the name of a preset or variant


def same_presets(**fields: Any) -> dict[str, Mapping[str, Any]]:
    """The same settings for every kind of data. No paper gives any for point clouds: those are ours."""
    return dict.fromkeys(("cifar10", "cifar100", "imagenet", "clouds"), fields)


@dataclass(frozen=True)
class Traits:
    """What a method needs and what it costs, as data: tables and `ctta list methods` show it, a test counts the passes.

    Passes are whole batches through a network, at the settings of preset "cifar10".
    """

    learns: str  # "nothing", "norm parameters", "all parameters" ...
    forwards: tuple[float, float]  # fewest and most forward passes per batch
    backwards: tuple[int, int]  # fewest and most backward passes per batch
    answers: Literal["before", "after"] = "before"  # whether the prediction comes before or after the batch's update
    source: Literal["none", "statistics", "samples"] = "none"  # what `prepare` keeps of the source data
    boundaries: bool = False  # whether it uses the hint that a domain starts
    episodic: bool = False  # whether it forgets all after each sample; backward passes are then per sample


@dataclass(frozen=True)
class OptimizerSettings(Config):
    """The optimiser. Settings of every method that learns."""

    optimizer: Literal["adam", "sgd"] = setting("adam", "Adam with betas (0.9, 0.999), or SGD with momentum 0.9.")
    lr: float = setting(1e-3, "Learning rate.", low=0.0)
    nesterov: bool = setting(True, "Nesterov momentum; only for SGD.")
    weight_decay: float = setting(0.0, "Weight decay.", low=0.0)


@dataclass(frozen=True)
class Normalization(Config):
    """Which statistics BatchNorm layers use. Settings of every method that does not keep the source's."""

    statistics: Literal["batch", "mixed", "running", "robust", "instance", "auto"] = setting(
        "batch",
        "Statistics of BatchNorm layers: the batch's, mixed with the source's, an average along the stream (running; "
        "robust: RoTTA's), the source's corrected per sample (instance: NOTE's), or auto: mixed per layer by how far "
        "the batch has shifted.",
    )
    batch_weight: float = setting(
        0.1,
        "Weight of the batch in mixed statistics; step of the average in running ones, of robust ones it is 0.05.",
        low=0.0,
        high=1.0,
        was="batch_share",
    )


@dataclass(frozen=True)
class Features(Config):
    """Where the features are. Settings of every method that reads them, or leaves the head as it is."""

    head: str | None = setting(
        None, "Name of the model's last layer, such as 'fc', whose input are the features; none: it is found."
    )


@dataclass(frozen=True)
class SampleShape(Config):
    """The shape of a sample. Settings of every method whose state has it."""

    sample: tuple[int, ...] | None = setting(
        None, "Shape of a sample, such as (3, 32, 32); none: that of the first batch."
    )


@dataclass(frozen=True)
class Augmentation(Config):
    """How views are augmented. Settings of every method that makes augmented views."""

    draw: Literal["batch", "sample"] = setting(
        "batch", "One random augmentation for the whole batch, or one per sample."
    )


def preset_by_input(shape: Sequence[int]) -> str:
    """The preset that fits a batch of this shape: point clouds, small images or large ones."""
    if len(shape) == 3:
        return "clouds"
    return "imagenet" if len(shape) == 4 and is_large(*shape[2:]) else "cifar10"


def default_variant(variants: Presets) -> str:
    """The variant that is taken if no preset is named."""
    return AUTO if AUTO in variants else PAPER


def preset_name(asked: str | None, variants: Presets, shape: Sequence[int]) -> str:
    """The preset in full, "cifar10" or "cifar10+fast"; only a variant, or none, goes by the shape of the batch."""
    asked = default_variant(variants) if asked is None else asked
    if asked in variants:
        base = preset_by_input(shape)
        return base if asked == PAPER else f"{base}+{asked}"
    return asked


def preset_fields(name: str, presets: Presets, variants: Presets, method: str) -> dict[str, Any]:
    """The fields that a preset sets."""
    base, _, variant = name.partition("+")
    variant = variant or PAPER
    if base not in presets or variant not in variants:
        for word in (base, variant):
            if word in FORMER:
                raise ConfigError(f"The preset {quoted(word)} of {method} is now called {quoted(FORMER[word])}.")
        known = [*presets, *variants, *(f"{base}+{one}" for base in presets for one in variants)]
        raise ConfigError(f"{method} has no preset {quoted(name)}. {nearest(name, known)}")
    return {**presets[base], **variants[variant]}
