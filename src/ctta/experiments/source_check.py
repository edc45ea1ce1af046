"""Compare the source model's error with its expected error, to tell whether a run is valid.

The error is measured once, on up to 500 samples: clean ones if the data set has them, else those of the run's domains.
The expected error is `model.expected_error` or, for known public weights, their published error on clean images of the
same size and classes, or over the paper's fifteen corruptions at severity 5.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from ctta.base.errors import InputError
from ctta.core.device import upload, where
from ctta.data.corruptions import PAPER
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import find
from ctta.data.stream import Stream, to_tensor
from ctta.experiments.clean_probe import count_wrong, evenly_spaced
from ctta.experiments.source_model import Model
from ctta.models import MODELS, PublicWeights, identify

SAMPLES = 500  # at most
DEVIATIONS = 2  # allowed sampling error, in standard deviations


@dataclass(frozen=True)
class SourceError:
    """The measured error of the source model."""

    error: float  # percent
    samples: int
    on: Literal["clean", "domains"]

    def __str__(self) -> str:
        where = "clean samples" if self.on == "clean" else "samples of the run's domains"
        return f"source error {self.error:.1f} % on {self.samples} {where}"


@dataclass(frozen=True)
class Expected:
    """The error that the source model should have."""

    error: float  # percent
    why: str

    def off(self, found: SourceError, tolerance: float) -> str:
        """Describe a difference that is too large; empty if there is none."""
        likely = min(max(self.error, 1.0), 99.0)  # an expected error of 0 or 100 % leaves room for chance, too
        room = tolerance + DEVIATIONS * math.sqrt(likely * (100 - likely) / found.samples)
        if abs(found.error - self.error) <= room:
            return ""
        return f"{found}, expected {self.error:.1f} ± {room:.1f} % ({self.why})"


def measure(data: Data, stream: Stream, model: nn.Module) -> SourceError | None:
    """Measure the source error on samples spread evenly over clean data or over the domains; None without labels."""
    dataset = find(data)
    domains, clean = stream.domains, False
    if dataset.holds == "clean":
        with suppress(InputError):  # a stored data set may lack its clean samples
            domains, clean = dataset.open(data, ((CLEAN, 0),)).domains, True
    wrong = samples = 0
    for domain in domains:
        rows = evenly_spaced(len(domain), max(1, SAMPLES // len(domains)))
        for part in np.array_split(rows, -(-len(rows) // stream.batch)):
            images, labels = domain.load(part)
            if (labels < 0).any():
                return None
            with torch.no_grad():
                wrong += count_wrong(model(upload(to_tensor(images), where(model))), labels, stream.scored)
            samples += len(labels)
    return SourceError(100 * wrong / samples, samples, "clean" if clean else "domains")


def expected(model: Model, data: Data, stream: Stream, pixels: int) -> Expected | None:
    """Return the expected source error, if it is given or known."""
    if model.expected_error is not None:
        return Expected(model.expected_error, "model.expected_error")
    known, name = known_weights(model), "small_resnet" if model.name == "embedded" else model.name
    if known is None or name is None:
        return None
    dataset, entry = find(data), MODELS[name]
    if dataset.holds == "clean":
        fitting = pixels == entry.input_size and len(stream.classes) in (0, entry.num_classes)
        return Expected(known.error, f"{known.name} on its test set") if fitting and known.error is not None else None
    title = dataset.named(data)
    whole = sorted(dataset.pairs(data)) == sorted((name, 5) for name in PAPER)
    return Expected(known.corrupted[title], f"{known.name} on {title}") if whole and title in known.corrupted else None


def known_weights(model: Model) -> PublicWeights | None:
    """Return the entry of the model's weights, if they are known public ones."""
    if model.factory is not None or model.name is None:
        return None
    if model.name == "embedded":
        return MODELS["small_resnet"].checkpoints[0]
    return identify(model.name, model.weights) if model.weights is not None else None


def scorable(stream: Stream, classes: int) -> None:
    """Refuse a model that has fewer logits than the data are scored on."""
    if stream.scored and max(stream.scored) >= classes:
        raise InputError(
            f"The data are scored on logits up to {max(stream.scored)}, and the model has {classes} classes. Give a "
            "model with all of them."
        )


def beyond(stream: Stream, classes: int) -> str:
    """Report that labels lie beyond the model's classes; empty if none does."""
    highest = max(int(domain.labels.max()) for domain in stream.domains)
    if highest < classes:
        return ""
    return f"labels go up to {highest}, and the model has {classes} classes, 0 to {classes - 1}"
