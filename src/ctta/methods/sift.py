"""Sift: a student and its teacher judge each sample together, and learn from what they select.

Ours, around the dynamic selection of DSS (Wang et al., WACV 2024), whose equations are cited by their numbers; on views
the student learns as in RMT (Döbler et al., CVPR 2023), without source data.

    student        s, the logits of student(x)
    averaged       t = w teacher(x) + (1 - w) mean of teacher(view x); w by how much doubt augmentation adds
                   (`teacher.confidence_weight`)
    in_need        views are made if w was below 0.8 when they last were, and in every fourth batch; else t = teacher(x)
    pseudo-label   y = softmax((s + t) / 2), whose confidence is reported
    predict        z = (s + t) / 2, before the update; if the stream's classes come in bursts, z / 2 + log prior, with
                   the prior of the classes in the batch (`core.prior`)
    select         confidence of y >= pi tau_c, Eq. 1 to 4 (`thresholds.dynamic`)
    imbalance      sum_c m_c log(m_c / q_c), m the mean of softmax s in the batch, q the class mix of what is predicted

If w was below 0.8, views have a say, and in every second batch the student sees one too:

    self_training  symmetric cross-entropy of s and of student(view x) with t, averaged, on what is selected
    contrast       the row of the classifier that is nearest to the features of x, these features and those of view x
                   attract each other; those of other samples repel
    loss           self_training + contrast + imbalance; in the other batches consistency, which is self_training
                   without the view, + imbalance

Else views would teach it nothing:

    positive_loss  cross-entropy of s with y^(1/T), on what is selected, Eq. 5 and 6
    loss           positive_loss + imbalance

    learn          at the share min(1, N / 64) of the rate (`core.optim`), times breadth(y)^2 (`core.prior`) if no
                   BatchNorm layer follows the batch: single samples, or batches of one class, one after another,
                   would teach a network to predict nothing else; BatchNorm takes out what a batch has in common
    follow_student teacher <- ema teacher + (1 - ema) student, Eq. 9

What differs from DSS: student and teacher judge together, views are 4 and only if they have a say, the student learns
on them, predictions are kept as diverse as the classes are and follow them if they come in bursts, nothing is restored,
and there is no negative learning.

Settings were chosen on images of 32 x 32 (`results/README.md` has what did not help), those of large images are
CoTTA's. On point clouds a rate of 1e-3 is too much, so their preset has 1e-4, and statistics mixed with the source's,
because batches of clouds are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.base.config import setting
from ctta.base.errors import ModelError
from ctta.base.limits import VIEWS
from ctta.core import prior, thresholds
from ctta.core.adapter import Step
from ctta.core.contrast import contrastive_loss, draw_projector, make_projector, nearest
from ctta.core.export import Corrected
from ctta.core.losses import consistency, masked_mean, self_training
from ctta.core.optim import pace
from ctta.core.prior import class_mix
from ctta.core.settings import Augmentation, Features, Normalization, OptimizerSettings, Presets, Traits, same_presets
from ctta.core.teacher import TeacherAdapter, TeacherSettings, mean_confidence, weighted_by_confidence
from ctta.methods.dss import positive_loss, sharpen

LITTLE_SAY = 0.8  # views have, if the un-augmented prediction has this weight or more
LOOK_AGAIN = 4  # batches after which views are made to find out
SHARPNESS, PROJECTION = 0.1, 128  # of the contrastive loss, as in RMT: its temperature, and the projector's width


@dataclass(frozen=True)
class SiftConfig(Augmentation, Features, TeacherSettings, Normalization, OptimizerSettings):
    """Settings of Sift."""

    ema: float = setting(
        0.995, "Decay of the teacher's moving average; 1: the teacher stays the source.", low=0.0, high=1.0
    )
    answers: Literal["student", "teacher", "both"] = setting(
        "both", "Who predicts: the student, the teacher, or both, the mean of their logits."
    )
    draw: Literal["batch", "sample"] = setting(
        "sample", "One random augmentation for the whole batch, or one per sample."
    )
    views: int = setting(
        4, "Augmented views that the teacher averages if a batch is in need; 0: none.", low=0, high=VIEWS
    )
    view_every: int = setting(
        2, "The student sees a view in one of so many batches; 1, in each, takes a fifth more time.", low=1
    )
    lambda_: float = setting(0.9, "Decay of the threshold's moving average.", symbol="lambda", low=0.0, high=1.0)
    temperature: float = setting(
        0.6, "Sharpening of the pseudo-label; lower is sharper.", symbol="T", low=0.0, open_low=True
    )
    balance: float = setting(1.0, "Weight of the term that keeps predictions as diverse as the classes are.", low=0.0)
    contrast: float = setting(1.0, "Weight of the contrastive loss; 0: none, and no head has to be found.", low=0.0)


class Sift(TeacherAdapter):
    """Student and teacher judge each sample together; DSS's threshold selects what is learned from."""

    name = "sift"
    title = "Sift"
    traits = Traits("all parameters", forwards=(2, 7), backwards=(1, 1), boundaries=True)
    config_type = SiftConfig
    config: SiftConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3),
        "imagenet": {"optimizer": "sgd", "lr": 0.01},
        "clouds": {"optimizer": "adam", "lr": 1e-4, "statistics": "mixed"},
    }
    paced = True
    weight_of_each = 0.5
    threshold: Tensor
    unaugmented_weight: Tensor  # w, when views were last made
    last_mix: Tensor  # of the classes, in the last batch
    unrest: Tensor  # of the class mix, on average

    def build(self) -> None:
        self.student, self.teacher = self.copy_source(many_passes=True), self.copy_source(many_passes=True)
        learned = list(self.student.parameters())
        if self.contrasts:
            try:
                width, (device, dtype) = self.find_head(), self.placement
            except ModelError as error:
                raise ModelError(f"{error} Without the contrastive loss none is needed: contrast=0.") from None
            self.projector = make_projector(width, PROJECTION).to_empty(device=device).to(dtype)
            learned += self.projector.parameters()
            draw_projector(self.projector, self.seed)
        self.train_on(learned)
        state = thresholds.start(self.classes, *self.placement)
        self.register_buffer("threshold", state.level)
        self.register_buffer("unaugmented_weight", torch.zeros_like(state.level))
        self.register_buffer("last_mix", state.classes)
        self.register_buffer("unrest", torch.zeros_like(state.level))

    @property
    def contrasts(self) -> bool:
        """Whether there is a contrastive loss: it is between views."""
        return self.config.views > 0 and self.config.contrast > 0

    def begin_domain(self) -> None:
        self.threshold.copy_(thresholds.domain_start(self.threshold, self.classes))

    def restore_source(self) -> None:
        """As for every method; the projector goes back to its start."""
        super().restore_source()
        if self.contrasts:
            draw_projector(self.projector, self.seed)

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        return {"unaugmented_weight": self.unaugmented_weight}

    def adapt(self, x: Tensor) -> Step:
        config, weight = self.config, self.observed["unaugmented_weight"]
        views = config.views if in_need(self.batches, weight) else 0
        features, student = self.features_and_logits(x)
        teacher = self.averaged(x, views)
        judged = (student.detach() + teacher) / 2
        pseudo = judged.softmax(1)
        selected = self.select(pseudo)
        held = class_mix(pseudo)
        self.follow_mix(held, len(x))
        mix = class_mix(self.correct(judged).softmax(1))

        loss = config.balance * imbalance(student, mix)
        if views == 0 or weight >= LITTLE_SAY:
            loss = loss + positive_loss(sharpen(pseudo, config.temperature), student, selected)
        elif self.batches % config.view_every != 0:
            loss = loss + masked_mean(consistency(teacher, student, symmetric=True), selected)
        else:
            (view,) = self.make_views(x)
            view_features, view_student = self.features_and_logits(view)
            loss = loss + masked_mean(self_training(student, view_student, teacher), selected)
            if features is not None and view_features is not None:
                loss = loss + config.contrast * self.contrast(features, view_features)
        breadth = 1.0 if self.follows_batch(x) else prior.breadth(held, len(x))
        loss = self.learn(loss, share=breadth**2 * pace(len(x)))
        self.follow_student()

        confidence = pseudo.amax(1)
        info = {
            "loss": loss,
            "threshold": self.threshold.clone(),
            "selected": selected.to(x.dtype).mean(),
            "views": torch.tensor(views),
            "confidence": confidence.mean(),
        }
        logits = self.answer(lambda: student, lambda: teacher)
        return Step(logits, info, {"confidence": confidence, "selected": selected})

    def follow_mix(self, mix: Tensor, samples: int) -> None:
        """Take in the class mix of one more batch."""
        self.unrest.lerp_(prior.unrest(mix, self.last_mix, samples), prior.STEP)
        self.last_mix.copy_(mix)

    def correct(self, logits: Tensor) -> Tensor:
        """By the prior of the classes, while they come in bursts."""
        return torch.where(self.unrest > prior.BURSTS, prior.corrected(logits), logits)

    def with_correction(self, network: nn.Module) -> nn.Module:
        return Corrected(network, prior.corrected) if self.unrest > prior.BURSTS else network

    def features_and_logits(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """The student's, with gradient; features only if the contrastive loss wants them."""
        if self.contrasts:
            return self.run_features(self.student, x, grad=True)
        return None, self.run(self.student, x, grad=True)

    def contrast(self, features: Tensor, view_features: Tensor) -> Tensor:
        """RMT's contrastive loss, with rows of the source's classifier as prototypes; 0-d."""
        rows = self.source_model.get_submodule(self.head).weight
        assert isinstance(rows, Tensor)
        known = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        prototypes = nearest(features.detach(), rows.detach().flatten(1), known)
        parts = (self.projector(each) for each in (prototypes, features, view_features))
        return contrastive_loss([F.normalize(each, dim=1) for each in parts], SHARPNESS)

    def averaged(self, x: Tensor, views: int) -> Tensor:
        """The teacher's logits, of the batch and of so many views of it."""
        unaugmented = self.run(self.teacher, x)
        if views == 0:
            return unaugmented
        augmented = torch.stack(list(self.run_views(self.teacher, x, views, antithetic=True)))
        confidence = mean_confidence(augmented.flatten(0, 1))
        logits, weight = weighted_by_confidence(unaugmented, augmented.mean(0), confidence)
        self.unaugmented_weight.copy_(weight)
        return logits

    def select(self, pseudo: Tensor) -> Tensor:
        """Whether each sample is selected, (N,); the threshold moves first."""
        state = thresholds.State(self.threshold, self.threshold.expand(self.classes), self.threshold)  # no averages
        selected, state = thresholds.dynamic(pseudo, state, self.config.lambda_, "sum")
        self.threshold.copy_(state.level)
        return selected


def in_need(batches: int, unaugmented_weight: float) -> bool:
    """Whether views are worth their time: they had a say when they were last made, or it is time to look again."""
    return unaugmented_weight < LITTLE_SAY or batches % LOOK_AGAIN == 0


def imbalance(student: Tensor, mix: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the mean prediction from the classes that the batch holds, 0-d."""
    mean = student.softmax(1).mean(0)
    return (mean * ((mean + 1e-5) / (mix + 1e-5)).log()).sum()
