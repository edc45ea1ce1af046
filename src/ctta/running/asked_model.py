"""The model and the method that a command asks for, by names and settings: opened, and checked before any batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ctta.base.errors import ConfigError, InputError
from ctta.base.fileio import read_lines
from ctta.base.text import quoted
from ctta.core.device import AUTO
from ctta.core.execution import Execution
from ctta.core.guard import Adapting
from ctta.core.settings import default_variant
from ctta.data.datasets.embedded import fashion_mnist
from ctta.data.datasets.embedded_clouds import SOLIDS
from ctta.experiments import experiment as experiments
from ctta.experiments.build import make_adapter
from ctta.methods import METHODS, known
from ctta.models import EMBEDDED_NETWORKS, find
from ctta.models.load import PROVIDERS
from ctta.models.preprocessing import is_normalized, known_size
from ctta.models.weights import trained_names
from ctta.records.run_folder import Cell

log = logging.getLogger("ctta")


@dataclass(frozen=True)
class AskedModel:
    """A loaded model, and the method that is to adapt it."""

    name: str  # as it was asked for
    network: nn.Module
    size: int | None  # pixels per side of its images, if they are known
    about: Mapping[str, Any]  # what was asked for, as plain data
    execution: Execution
    experiment: experiments.Experiment
    classes: Path | str | None  # file with their names
    clouds: bool = False  # whether it is known to take point clouds

    @property
    def _given(self) -> Mapping[str, Any]:
        given: Mapping[str, Any] = self.about["model"]
        return given

    def adapter(self, shape: Sequence[int], *, detect: bool = False) -> tuple[Cell, Adapting]:
        """The method for batches of this shape, with the settings that it has for them."""
        (cell,) = self.experiment.cells(shape)
        return cell, make_adapter(cell, self.network, self.execution, detects=detect)

    def warn_of_normalization(self) -> None:
        """Tell if a model of the user's own may want other values than pixels in [0, 1]."""
        if self._given["factory"] and self._given["mean"] is None and not is_normalized(self.network):
            log.warning(
                "No normalisation is known: %s gets pixels in [0, 1]. If it was trained on normalised images, give "
                "--mean and --std.",
                self.name,
            )

    def class_names(self, count: int) -> tuple[str, ...]:
        """From a text file, one per line; else those that came with the weights; empty if they are not known."""
        names: tuple[str, ...] = ()
        if self.classes is not None:
            names = tuple(read_lines(Path(self.classes), "a text file with the name of one class per line"))
        elif self.name in EMBEDDED_NETWORKS:
            names = fashion_mnist()[2] if self.name == "embedded" else tuple(SOLIDS)
        elif self._given["weights"]:
            names = trained_names(self._given["weights"])
        if names and len(names) != count:
            raise InputError(f"There are {len(names)} names of classes; the model has {count} classes.")
        return names


def ask(
    model: str,
    *,
    method: str = "sift",
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    weights: str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    batch: int = 64,
    seed: int = 0,
    classes: Path | str | None = None,
    guard: bool = True,
    device: str = AUTO,
) -> AskedModel:
    """Load the model; all mistakes of the settings are reported together.

    `model` is 'embedded', a name from ctta.models.MODELS, 'timm:...' and its like, or a factory. `changes` are fields
    of the method's settings.
    """
    for name in ("method", "preset", "guard"):
        if name in (changes or {}):
            raise ConfigError(f"--set changes fields of the method. Give --{name} instead of --set {name}.")
    provider, colon, _ = model.partition(":")
    own = bool(colon) and provider not in PROVIDERS
    if colon and not own:
        weights = weights or "pretrained"
    about = {
        "model": {"name": None if own else model, "factory": model if own else None, "weights": weights}
        | {"mean": mean and list(mean), "std": std and list(std)},
        "methods": [
            {**(changes or {}), "method": method, "preset": preset or _safe_preset(method, changes), "guard": guard}
        ],
        "seeds": [seed],
        "execution": {"device": device},
    }
    made = _checked(about, method, batch, size)  # an experiment whose data are yet to come
    entry = None if own else find(EMBEDDED_NETWORKS.get(model, model))
    loaded = made.model.load()
    size = size or (known_size(loaded) if entry is None else entry.input_size)
    execution = Execution(device=made.execution.device)
    about["execution"] = {"device": execution.device}
    clouds = entry is not None and entry.clouds
    return AskedModel(model, loaded, size, about, execution, made, classes, clouds)


def _safe_preset(method: str, changes: Mapping[str, Any] | None) -> str | None:
    """The preset that a method made without one has; for a benchmark it is the published one."""
    kind = known(method)
    return default_variant(kind.variants) if kind and "statistics" not in (changes or {}) else None


def _checked(about: Mapping[str, Any], method: str, batch: int, size: int | None) -> experiments.Experiment:
    given = {"batch": batch, "size": size or 1}
    problems = [f"{name} must be at least 1. Got {value}." for name, value in given.items() if value < 1]
    if (kind := known(method)) and kind.source_for(about["methods"][0]) != "none":
        free = [name for name, other in METHODS.items() if other.traits.source == "none"]
        problems.append(
            f"{quoted(method)} needs labelled source data, which are not given. Choose from: {', '.join(free)}."
        )
    try:
        made = experiments.make(about)
    except ConfigError as error:
        problems += str(error).splitlines()
    if problems:
        raise ConfigError("\n".join(problems))
    return made
