"""Whether a run can be trusted: the source model's error against the one that is expected of it.

The error is measured once, on a sample: of the clean images where the data set has them, else over the domains of the
run. What is expected is what the user says, `model.expected_error`, or what is known of public weights: their error on
clean images of the same size and classes, or over the paper's fifteen corruptions at severity 5.
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
from ctta.data.corruptions import PAPER
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import DATASETS
from ctta.data.stream import Stream, answer, to_tensor
from ctta.experiments.experiment import Model
from ctta.models import MODELS, PublicWeights, identify

SAMPLES = 500  # at most
DEVIATIONS = 2  # standard deviations of the sample's error that chance is allowed


@dataclass(frozen=True)
class SourceError:
    """The source model's error on a sample."""

    error: float  # percent
    samples: int
    on: Literal["clean", "domains"]

    def __str__(self) -> str:
        where = "clean images" if self.on == "clean" else "images of the run's domains"
        return f"source error {self.error:.1f} % on {self.samples} {where}"


@dataclass(frozen=True)
class Expected:
    """What the source error should be."""

    error: float  # percent
    why: str

    def off(self, found: SourceError, tolerance: float) -> str:
        """How far off it is, in words; empty if it is not."""
        likely = min(max(self.error, 1.0), 99.0)  # nothing is so sure that chance has no part in it
        room = tolerance + DEVIATIONS * math.sqrt(likely * (100 - likely) / found.samples)
        if abs(found.error - self.error) <= room:
            return ""
        return f"{found}, expected {self.error:.1f} ± {room:.1f} % ({self.why})"


def measure(data: Data, stream: Stream, model: nn.Module) -> SourceError | None:
    """The source error on samples spread evenly over clean images, or over the domains; none without labels."""
    dataset = DATASETS[data.dataset]
    domains, clean = stream.domains, False
    if dataset.holds == "clean":
        with suppress(InputError):  # a stored set may lack its clean part
            domains, clean = dataset.open(data, ((CLEAN, 0),)).domains, True
    wrong = samples = 0
    for domain in domains:
        n = min(len(domain), max(1, SAMPLES // len(domains)))
        rows = np.linspace(0, len(domain) - 1, n).round().astype(np.int64)
        for part in np.array_split(rows, -(-n // stream.batch)):
            images, labels = domain.load(part)
            with torch.no_grad():
                answers = answer(model(to_tensor(images)), stream.scored).numpy()
            if (labels < 0).any():
                return None
            wrong, samples = wrong + int((answers != labels).sum()), samples + len(labels)
    return SourceError(100 * wrong / samples, samples, "clean" if clean else "domains")


def expected(model: Model, data: Data, stream: Stream, pixels: int) -> Expected | None:
    """What is known of the source error before it is measured."""
    if model.expected_error is not None:
        return Expected(model.expected_error, "model.expected_error")
    known, name = known_weights(model), "small_resnet" if model.name == "embedded" else model.name
    if known is None or name is None:
        return None
    dataset, entry = DATASETS[data.dataset], MODELS[name]
    if dataset.holds == "clean":
        fitting = pixels == entry.input_size and len(stream.classes) in (0, entry.num_classes)
        return Expected(known.error, f"{known.name} on its test set") if fitting and known.error is not None else None
    title = dataset.named(data)
    whole = sorted(dataset.pairs(data)) == sorted((name, 5) for name in PAPER)
    return Expected(known.corrupted[title], f"{known.name} on {title}") if whole and title in known.corrupted else None


def known_weights(model: Model) -> PublicWeights | None:
    """The public weights that the model has, if they are known."""
    if model.factory is not None or model.name is None:
        return None
    if model.name == "embedded":
        return MODELS["small_resnet"].checkpoints[0]
    return identify(model.name, model.weights) if model.weights is not None else None


def scorable(stream: Stream, classes: int) -> None:
    """Refuse a model that lacks the logits that count."""
    if stream.scored and max(stream.scored) >= classes:
        raise InputError(
            f"The data are scored on logits up to {max(stream.scored)}, and the model has {classes} classes. Give a "
            "model with all of them."
        )


def beyond(stream: Stream, classes: int) -> str:
    """That labels lie beyond the model's classes, in words; empty if none does."""
    highest = max(int(domain.labels.max()) for domain in stream.domains)
    if highest < classes:
        return ""
    return f"labels go up to {highest}, and the model has {classes} classes, 0 to {classes - 1}"
