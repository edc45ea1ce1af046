"""Student, teacher and source: the averaged pseudo-label, the moving average and the restore.

Shared by the methods that learn from a mean teacher.

    pseudo_label     the teacher's prediction, averaged over augmented views if the source is not confident
    follow_student   teacher <- ema teacher + (1 - ema) student; ema = 1 is a frozen teacher
    answer           the prediction of the teacher, of the student, or the sum of both
    restore          each student scalar goes back to its source value with a small probability
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ctta.base.config import Config, setting
from ctta.base.errors import InputError
from ctta.base.limits import VIEWS
from ctta.base.randomness import Randomness
from ctta.core import statistics as norms
from ctta.core.adapter import Adapter, log
from ctta.core.export import Summed
from ctta.core.settings import Augmentation, Normalization, OptimizerSettings, Presets
from ctta.core.shares import AT_HOME


@dataclass(frozen=True)
class TeacherSettings(Config):
    """How a teacher follows and whose prediction counts. Settings of every method with a student and a teacher."""

    ema: float = setting(
        0.999,
        "Decay of the teacher's moving average; 1: the teacher stays the source.",
        symbol="beta",
        low=0.0,
        high=1.0,
    )
    frozen_after: int | None = setting(
        None, "Batches after which the teacher no longer follows; none: it always does.", low=0
    )
    answers: Literal["student", "teacher", "both"] = setting(
        "teacher", "Who predicts: the student, the teacher, or both, the sum of their logits."
    )


@dataclass(frozen=True)
class MeanTeacherConfig(Augmentation, TeacherSettings, Normalization, OptimizerSettings):
    """Settings of CoTTA and what is built on it."""

    views: int = setting(
        32, "Augmented views to average, if the augmentation threshold asks for them.", low=1, high=VIEWS
    )
    antithetic: bool = setting(
        False,
        "Augment in antithetic pairs: the second view rotates the other way, flips if the first does not, and so on.",
        was="opposite",
    )
    unaugmented_weight: float | Literal["confidence"] = setting(
        0.0,
        "Weight of the un-augmented prediction in the average; confidence: per batch, by how much more confident the "
        "teacher is without augmentation.",
        low=0.0,
        high=1.0,
        was="plain",
        renamed={"weighed": "confidence"},
    )
    augmentation_threshold: float = setting(
        0.92,
        "Augmented views are averaged if the source's mean confidence is below this and, with auto statistics, layers "
        "show that the domain has shifted; 0 means never, 1 always.",
        symbol="p_th",
        low=0.0,
        high=1.0,
        was="gate",
    )
    restore: float = setting(0.01, "Probability that a student scalar returns to its source value.", low=0.0, high=1.0)
    symmetric: bool = setting(False, "Consistency loss in both directions, as CoTTA has it on ImageNet.")


# CoTTA's values per data set, which DSS follows. Those for point clouds are ours.
MEAN_TEACHER_PRESETS: dict[str, dict[str, Any]] = {
    "cifar10": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "augmentation_threshold": 0.92},
    "cifar100": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "augmentation_threshold": 0.72},
    "imagenet": {
        "optimizer": "sgd",
        "lr": 0.01,
        "restore": 0.001,
        "augmentation_threshold": 0.1,
        "symmetric": True,
    },
    "clouds": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "augmentation_threshold": 0.92, "draw": "sample"},
}

# 4 augmentations instead of 32, drawn per sample in antithetic pairs, averaged with the un-augmented prediction: views
# count for less if they make the teacher unsure (contrast, blur), for more if not (noise). Every batch is augmented.
FAST_PRESET: dict[str, Any] = {
    "views": 4,
    "draw": "sample",
    "antithetic": True,
    "unaugmented_weight": "confidence",
    "augmentation_threshold": 1.0,
}
LEAST_WEIGHT, WEIGHT_SLOPE = 0.15, 0.7  # chosen on corruptions that no table reports


class TeacherAdapter(Adapter):
    """A student that learns, a teacher that follows it slowly, and the source they both start at."""

    config: TeacherSettings
    student: nn.Module
    teacher: nn.Module
    weight_of_each: ClassVar[float] = 1.0  # of the logits of student and teacher, if both predict

    @property
    def network(self) -> nn.Module:
        """The one that predicts, or both together."""
        match self.config.answers:
            case "student":
                return self.student
            case "teacher":
                return self.teacher
            case "both":
                return Summed(self.student, self.teacher, weight=self.weight_of_each)

    def finish(self, network: nn.Module, x: Tensor | None) -> nn.Module:
        return network

    def logits(self, x: Tensor) -> Tensor:
        return self.answer(lambda: self.run(self.student, x), lambda: self.run(self.teacher, x))

    def answer(self, student: Callable[[], Tensor], teacher: Callable[[], Tensor]) -> Tensor:
        """The prediction that counts, of those that can be asked for."""
        match self.config.answers:
            case "student":
                return student()
            case "teacher":
                return teacher()
            case "both":
                return self.weight_of_each * (student() + teacher())

    def follow_student(self) -> None:
        """Eq. 9 of DSS: the teacher moves towards the student."""
        if self.config.frozen_after is None or self.batches < self.config.frozen_after:
            self.follow(self.teacher.parameters(), self.student.parameters(), self.config.ema)


class MeanTeacher(TeacherAdapter):
    """A teacher whose prediction is averaged over views, and a student that is restored here and there."""

    config: MeanTeacherConfig
    variants: ClassVar[Presets] = {**Adapter.variants, "fast": FAST_PRESET}

    def build(self) -> None:
        self.student, self.teacher = self.copy_source(many_passes=True), self.copy_source(many_passes=True)
        self.train_on(self.student.parameters())

    def review(self) -> None:
        threshold = self.config.augmentation_threshold
        if 0 < threshold <= 1 / self.classes:
            log.warning(
                "%s: augmentation_threshold is %g, and with %d classes mean confidence is never below it, so augmented "
                "views are never averaged. ctta.calibrate_gate(model, source_batches) gives the threshold that fits.",
                self.name,
                threshold,
                self.classes,
            )

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        """What decides whether views are averaged: the source's mean confidence, and how much a shift is doubted."""
        if self.config.augmentation_threshold in (0.0, 1.0):
            return {}
        doubt = norms.doubt(self.source_model)
        seen = {"source_confidence": mean_confidence(self.expected(x))}
        return seen if doubt is None else {**seen, "doubt": doubt}

    def pseudo_label(self, x: Tensor, seen: list[Tensor] | None = None) -> tuple[Tensor, int]:
        """The teacher's logits, and how many views were averaged for them (0: the un-augmented batch).

        The logits of each view go to `seen`.
        """
        threshold = self.config.augmentation_threshold
        unsure = self.observed.get("source_confidence", 1.0) < threshold
        wanted = threshold == 1 or (unsure and self.observed.get("doubt", 0.0) < AT_HOME)
        views = self.config.views if wanted else 0
        return self.averaged(self.teacher, x, views, seen), views

    def averaged(self, network: nn.Module, x: Tensor, views: int, seen: list[Tensor] | None = None) -> Tensor:
        """Mean of the logits over augmented views, each normalised with its own statistics; 0: the un-augmented batch.

        The un-augmented batch has the weight in it that `unaugmented_weight` says.
        """
        weight = self.config.unaugmented_weight
        if views == 0 or weight == 1:
            return self.run(network, x)
        total = torch.zeros(len(x), self.classes, dtype=x.dtype, device=x.device)
        confidence = total.new_zeros(())
        for logits in self.run_views(network, x, views, antithetic=self.config.antithetic):
            total += logits
            if seen is not None:
                seen.append(logits)
            if weight == "confidence":
                confidence += mean_confidence(logits)
        mean = total / views
        if weight == 0:
            return mean
        unaugmented = self.run(network, x)
        if weight == "confidence":
            return weighted_by_confidence(unaugmented, mean, confidence / views)[0]
        return mean.lerp(unaugmented, weight)

    def restore(self) -> None:
        """CoTTA's stochastic restore."""
        pairs = list(zip(self.student.parameters(), self.source_model.parameters(), strict=True))
        stochastic_restore(pairs, self.config.restore, self.random)


def mean_confidence(logits: Tensor) -> Tensor:
    """Batch mean of the largest probability."""
    return logits.softmax(1).amax(1).mean()


def confidence_weight(unaugmented: Tensor, augmented: Tensor) -> Tensor:
    """The weight of the un-augmented prediction, from mean confidences: by how much doubt augmentation adds."""
    added_doubt = (unaugmented - augmented) / (1 - unaugmented).clamp(min=1e-6)
    return (LEAST_WEIGHT + WEIGHT_SLOPE * added_doubt).clamp(0, 1)


def weighted_by_confidence(unaugmented: Tensor, augmented: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
    """The average of un-augmented and augmented logits, and the weight of the former, 0-d.

    `confidence` is the mean confidence of the augmented views.
    """
    weight = confidence_weight(mean_confidence(unaugmented), confidence)
    return augmented.lerp(unaugmented, weight), weight


@torch.no_grad()
def stochastic_restore(pairs: Iterable[tuple[Tensor, Tensor]], probability: float, random: Randomness) -> None:
    """Overwrite each scalar of the first tensor by that of the second with `probability`, independently.

    Indices are drawn with replacement, Poisson(-n log(1 - p)) of them: a scalar is hit at least once with
    probability p, as with a mask, and the cost is that of the few scalars hit.
    """
    if probability == 0:
        return
    pairs = list(pairs)
    if probability == 1:
        for weights, source in pairs:
            weights.copy_(source)
        return
    sizes = torch.tensor([weights.numel() for weights, _ in pairs], dtype=torch.float64, device="cpu")
    hits: list[int] = torch.poisson(-sizes * math.log1p(-probability), generator=random.host).long().tolist()
    for (weights, source), count in zip(pairs, hits, strict=True):
        if count:
            index = torch.randint(weights.numel(), (count,), generator=random.device, device=weights.device)
            # Indexing, unlike put_, is allowed if deterministic algorithms are asked for.
            if weights.is_contiguous() and source.is_contiguous():
                weights.view(-1)[index] = source.view(-1)[index]
            else:
                weights[torch.unravel_index(index, weights.shape)] = source.take(index)


@torch.no_grad()
def calibrate_gate(model: nn.Module, source_batches: Iterable[Tensor | Sequence[Tensor]]) -> float:
    """The augmentation threshold for a model of one's own: the 5 % quantile of its source confidence, minus 0.05.

    Batches are inputs, or tuples whose first entry is the input. The model is used in eval mode and left as it was.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        confidence = [
            model(batch if isinstance(batch, Tensor) else batch[0]).softmax(1).amax(1) for batch in source_batches
        ]
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not confidence:
        raise InputError("The threshold is read off source data and there were none. Give at least one batch.")
    return max(0.0, torch.cat(confidence).float().quantile(0.05).item() - 0.05)
