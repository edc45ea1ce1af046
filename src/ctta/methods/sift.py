"""Sift: a student and its teacher judge each sample together, and learn from what they select.

Ours, around the dynamic selection of DSS (Wang et al., WACV 2024), whose equations are cited by their numbers.

    student        s, the logits of student(x)
    averaged       t = w teacher(x) + (1 - w) mean of teacher(view x), w by how much doubt views add
    judgement      z = (s + t) / 2: the prediction, before the update; y = softmax z is the pseudo-label
    select         confidence of y >= pi tau_c, Eq. 1 to 4 (`thresholds.dynamic`)
    positive_loss  cross-entropy of s with y^(1/T), on what is selected, Eq. 5 and 6
    negative_loss  -sum_k [y_k < alpha] log(1 - p_k), on all, Eq. 7
    class_mix      q = mean over samples of k y + (1 - k) / C, k the confidence of y scaled to 0 ... 1
    imbalance      sum_c m_c log(m_c / q_c), m the mean probability of s over the batch
    loss           positive_loss + negative_loss + imbalance
    warm_up        teacher <- b teacher + (1 - b) student, b = n / (n + 1) at batch n, at most ema, Eq. 9

What differs from DSS: the student has a say in the pseudo-label and in the prediction, the teacher follows fast at
first, four views instead of 32, predictions are kept as diverse as the classes are, and nothing is restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.base.limits import VIEWS
from ctta.core import thresholds
from ctta.core.adapter import Step
from ctta.core.settings import Augmentation, Normalization, OptimizerSettings, Presets, Traits, same_presets
from ctta.core.teacher import TeacherAdapter, TeacherSettings, confidence_weight, mean_confidence
from ctta.methods.dss import negative_loss, positive_loss, sharpen


@dataclass(frozen=True)
class SiftConfig(Augmentation, TeacherSettings, Normalization, OptimizerSettings):
    """Settings of Sift."""

    ema: float = setting(
        0.99, "Decay of the teacher's moving average, once it has warmed up.", symbol="b", low=0.0, high=1.0
    )
    answers: Literal["student", "teacher", "both"] = setting(
        "both", "Who predicts: the student, the teacher, or both, the sum of their logits."
    )
    draw: Literal["batch", "sample"] = setting(
        "sample", "One random augmentation for the whole batch, or one per sample."
    )
    views: int = setting(4, "Augmented views that the teacher averages; 0: none.", low=0, high=VIEWS)
    lambda_: float = setting(0.9, "Decay of the threshold's moving average.", symbol="lambda", low=0.0, high=1.0)
    temperature: float = setting(
        0.6, "Sharpening of the pseudo-label; lower is sharper.", symbol="T", low=0.0, open_low=True
    )
    alpha: float = setting(
        0.05, "A class below this probability is a complementary label.", symbol="alpha", low=0.0, high=1.0
    )
    balance: float = setting(1.0, "Weight of the term that keeps predictions as diverse as the classes are.", low=0.0)


class Sift(TeacherAdapter):
    """Student and teacher judge each sample together; DSS's threshold selects what is learned from."""

    name = "sift"
    title = "Sift"
    traits = Traits("all parameters", forwards=(6, 6), backwards=(1, 1), boundaries=True)
    config_type = SiftConfig
    config: SiftConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3),
        "imagenet": {"optimizer": "sgd", "lr": 0.01},
    }
    threshold: Tensor

    def build(self) -> None:
        self.student, self.teacher = self.copy_source(many_passes=True), self.copy_source(many_passes=True)
        self.train_on(self.student.parameters())
        self.register_buffer("threshold", thresholds.start(self.classes, *self.placement).level)

    def begin_domain(self) -> None:
        self.threshold.copy_(thresholds.domain_start(self.threshold, self.classes))

    def adapt(self, x: Tensor) -> Step:
        config = self.config
        student = self.run(self.student, x, grad=True)
        teacher = self.averaged(x)
        pseudo = ((student.detach() + teacher) / 2).softmax(1)
        selected = self.select(pseudo)
        loss = positive_loss(sharpen(pseudo, config.temperature), student, selected)
        loss = loss + negative_loss(pseudo < config.alpha, student)
        loss = self.learn(loss + config.balance * imbalance(student, class_mix(pseudo)))
        self.follow_student()

        confidence = pseudo.amax(1)
        info = {"loss": loss, "threshold": self.threshold.clone(), "selected": selected.to(x.dtype).mean()}
        info |= {"views": torch.tensor(config.views), "confidence": confidence.mean()}
        logits = self.answer(lambda: student, lambda: teacher)
        return Step(logits, info, {"confidence": confidence, "selected": selected})

    @property
    def momentum(self) -> float:
        return warm_up(self.batches + 1, self.config.ema)

    def averaged(self, x: Tensor) -> Tensor:
        """The teacher's logits, of the batch and of views of it."""
        plain = self.run(self.teacher, x)
        if self.config.views == 0:
            return plain
        views = torch.stack(list(self.run_views(self.teacher, x, self.config.views, antithetic=True)))
        weight = confidence_weight(mean_confidence(plain), mean_confidence(views.flatten(0, 1)))
        return views.mean(0).lerp(plain, weight)

    def select(self, pseudo: Tensor) -> Tensor:
        """Whether each sample is selected, (N,); the threshold moves first."""
        state = thresholds.State(self.threshold, pseudo.new_empty(self.classes), self.threshold)
        selected, state = thresholds.dynamic(pseudo, state, self.config.lambda_, "sum")
        self.threshold.copy_(state.level)
        return selected


def class_mix(pseudo: Tensor) -> Tensor:
    """The classes that the batch holds, as far as its pseudo-labels are sure, and all alike if they are not, (C,)."""
    chance = 1 / pseudo.shape[1]
    sure = (pseudo.amax(1, keepdim=True) - chance) / (1 - chance)
    return (sure * pseudo + (1 - sure) * chance).mean(0)


def imbalance(student: Tensor, mix: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the mean prediction from the classes that the batch holds, 0-d."""
    mean = student.softmax(1).mean(0)
    return (mean * ((mean + 1e-5) / (mix + 1e-5)).log()).sum()


def warm_up(batch: int, ema: float) -> float:
    """How much of itself the teacher keeps: until it has warmed up it is the mean of all students so far."""
    return min(ema, batch / (batch + 1))
