"""Settings of a source training, read strictly from YAML: all mistakes are reported together.

data: {dataset: arrays, path: train.npz}
test: {dataset: arrays, path: test.npz}
model: {name: cifar_resnet20}
train: {epochs: 100}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import nn

from ctta.base.config import Config, section, setting
from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import hashed
from ctta.base.limits import CLASSES, EPOCHS
from ctta.base.text import quoted
from ctta.core.device import AUTO
from ctta.core.execution import Execution
from ctta.data.dataset import Data
from ctta.data.datasets import known
from ctta.data.datasets import problems as data_problems
from ctta.experiments.source_model import FACTORY, Model
from ctta.models import EMBEDDED_NETWORKS, find, from_factory

SECTIONS = ("data", "test", "model", "train")


@dataclass(frozen=True)
class Network(Config):
    """The network that is trained."""

    name: str | None = setting(None, "A name from ctta.models.MODELS, 'embedded', or 'timm:...' and similar.")
    factory: str | None = setting(None, FACTORY)
    weights: str | None = setting(None, "A file to start from, with its normalisation; random weights by default.")
    classes: int | None = setting(
        None, "Number of classes; by default that of the data or the network.", low=1, high=CLASSES
    )
    mean: tuple[float, ...] | None = setting(None, "Mean of the images, one value per channel; measured by default.")
    std: tuple[float, ...] | None = setting(None, "Standard deviation of the images, one value per channel.")

    def build(self, classes: int | None) -> nn.Module:
        """Return the network, with random weights or those of the file."""
        if self.weights:
            return self.source().load()
        if self.factory:
            return from_factory(self.factory)
        return find(EMBEDDED_NETWORKS.get(str(self.name), str(self.name))).build(classes)

    def source(self) -> Model:
        """Return the same network as the source model of an experiment."""
        return Model(self.name, self.weights, self.factory, self.mean, self.std)


@dataclass(frozen=True)
class Recipe(Config):
    """How the network is trained."""

    epochs: int = setting(100, "Number of passes over the training data.", low=1, high=EPOCHS)
    batch: int = setting(128, "Batch size.", low=2)
    lr: float = setting(0.1, "Highest learning rate.", low=0.0, open_low=True)
    momentum: float = setting(0.9, "Nesterov momentum.", low=0.0, high=1.0, open_low=True)
    weight_decay: float = setting(5e-4, "Weight decay; not on norm layers and biases.", low=0.0)
    warmup: float = setting(0.05, "Fraction of the training in which the learning rate rises.", low=0.0, high=1.0)
    label_smoothing: float = setting(0.0, "Probability that is spread over all classes.", low=0.0, high=1.0)
    augment: Literal["standard", "no_flip", "none"] = setting(
        "standard", "Standard augmentation, the same without flips, or none.", renamed={"unmirrored": "no_flip"}
    )
    auxiliary: Literal["none", "rotation"] = setting(
        "none", "A second task: rotation also trains a head that tells quarter turns, for the method ttt."
    )
    points: int | None = setting(None, "Points drawn per point cloud and batch; all by default.", low=1)
    precision: Literal["auto", "full", "autocast"] = setting(
        "full", "The weights' own precision, or bfloat16 autocast. auto: autocast on a device that is fast in bfloat16."
    )
    holdout: float = setting(0.0, "Fraction of the data that is kept for testing if there is no test set.", low=0.0)
    test_every: int = setting(5, "Epochs between two tests; the last epoch is always tested.", low=1)
    seed: int = setting(0, "Seed of weights, order and augmentation.", low=0)
    device: str = setting(AUTO, "Where to train: auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:1, mps.")

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then a cosine to zero."""
        rising = round(self.warmup * steps)
        if step < rising:
            return self.lr * (step + 1) / rising
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(steps - rising, 1)))

    def problems(self, *, tested: bool) -> list[str]:
        """List what is wrong although every field is valid; `tested`: there is a test section."""
        found = []
        if self.holdout and tested:
            found.append("holdout and a test section exclude each other: give one of them.")
        if self.holdout >= 1:
            found.append(f"holdout must be less than 1: something must be left to learn from. Got {self.holdout}.")
        return found

    def resolved(self) -> Recipe:
        """With a device that is there, and the precision that `auto` means on it."""
        asked = Execution(device=self.device, precision=self.precision).resolved()
        return self.replace(device=asked.device, precision="full" if asked.precision == "full" else "autocast")


@dataclass(frozen=True)
class TrainingSettings:
    """The four sections of a training file."""

    data: Data
    test: Data | None
    model: Network
    train: Recipe

    def identity(self) -> str:
        """Return a hash of everything that decides the weights."""
        decisive = asdict(self)
        decisive["train"]["device"] = self.train.device.partition(":")[0]  # which one of its kind decides nothing
        return hashed(json.dumps(decisive, sort_keys=True))


def make(values: Mapping[str, Any]) -> TrainingSettings:
    """Check plain data; all mistakes are reported together. Data are clean unless a section names other domains."""
    problems = [f"There is no section {quoted(key)}. {nearest(key, SECTIONS)}" for key in values if key not in SECTIONS]
    network = section(Network, "model", values.get("model", {}), problems)
    recipe = section(Recipe, "train", values.get("train", {}), problems)
    data = _data("data", values.get("data", {}), problems)
    tested = values.get("test") is not None
    test = _data("test", values["test"], problems) if tested else None
    problems += [f"model: {problem}" for problem in network.source().problems()] if network else []
    if network and data and (dataset := known(data)):
        misfit = network.source().misfit(dataset.samples)
        problems += [f"model: {misfit}"] if misfit else []
    if recipe:
        problems += [f"train: {problem}" for problem in recipe.problems(tested=tested)]
        try:
            recipe = recipe.resolved()
        except ConfigError as error:
            problems.append(f"train: {error}")
    if problems or network is None or recipe is None or data is None:
        raise ConfigError("\n".join(problems))
    return TrainingSettings(data, test, network, recipe)


def _data(name: str, values: Any, problems: list[str]) -> Data | None:
    made = section(Data, name, {"domains": "clean", **values} if isinstance(values, Mapping) else values, problems)
    problems += [f"{name}: {problem}" for problem in data_problems(made)] if made else []
    return made
