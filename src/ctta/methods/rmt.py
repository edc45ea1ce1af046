"""RMT: a robust mean teacher, with source prototypes that hold the features in place.

Döbler et al., "Robust Mean Teacher for Continual and Gradual Test-Time Adaptation", CVPR 2023.

    class_means        a prototype for each class: the mean feature of its source samples
    nearest            the prototype most like a sample's features, by cosine (`core.contrast`)
    contrastive_loss   prototype, features of x and of view x of one sample attract each other, all others repel
    self_training      symmetric cross-entropy of student(x) and of student(view x) with teacher(x), averaged
    teacher            teacher <- 0.999 teacher + 0.001 student, all parameters
    returns            student(x) + teacher(x), logits, or as `answers` says (before the update)

Not source-free: prototypes come from source data, once, through `prepare`. With `source_free` they are the rows of the
classifier, which is ours: a row is the direction in which the features of its class lie. (A public benchmark calls RMT
source-free if it replays no source samples, but has prototypes of the source.)

Departures: the released code can also warm the teacher up on source samples before the stream and replay labelled
source batches along it (both are on by default there). Neither is here: only the prototypes are kept of the source. A
class that the source data lack has no prototype. All parameters learn, not only those named weight or bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.base.limits import WIDTH
from ctta.core.adapter import Step
from ctta.core.contrast import contrastive_loss, draw_projector, make_projector, nearest
from ctta.core.losses import self_training
from ctta.core.settings import Augmentation, Features, Normalization, OptimizerSettings, Presets, Traits, same_presets
from ctta.core.teacher import TeacherAdapter, TeacherSettings


@dataclass(frozen=True)
class RMTConfig(Augmentation, Features, TeacherSettings, Normalization, OptimizerSettings):
    """Settings of RMT."""

    answers: Literal["student", "teacher", "both"] = setting(
        "both", "Who predicts: the student, the teacher, or both, the sum of their logits."
    )
    source_free: bool = setting(False, "Rows of the classifier are the prototypes, so that no source data are needed.")
    temperature: float = setting(
        0.1, "Sharpness of the contrastive loss; lower is sharper.", symbol="tau", low=0.0, open_low=True
    )
    projection: int = setting(
        128, "Width of the projector, two linear layers that the contrast is taken after.", low=1, high=WIDTH
    )
    contrast: float = setting(1.0, "Weight of the contrastive loss.", symbol="lambda_CL", low=0.0)


class RMT(TeacherAdapter):
    """Learns from a teacher in both directions, and from prototypes of the source's classes."""

    name = "rmt"
    title = "RMT"
    traits = Traits("all parameters", forwards=(3, 3), backwards=(1, 1), source="statistics")
    config_type = RMTConfig
    config: RMTConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3),
        "imagenet": {"optimizer": "sgd", "lr": 0.01},
        "clouds": {"optimizer": "adam", "lr": 1e-3, "draw": "sample"},
    }
    source_prototypes: Tensor
    source_known: Tensor

    def build(self) -> None:
        width, (device, dtype) = self.find_head(), self.placement
        self.student, self.teacher = self.copy_source(), self.copy_source()
        self.projector = make_projector(width, self.config.projection).to_empty(device=device).to(dtype)
        draw_projector(self.projector, self.seed)
        self.train_on([*self.student.parameters(), *self.projector.parameters()])
        self.register_buffer("source_prototypes", torch.zeros(self.classes, width, device=device, dtype=dtype))
        self.register_buffer("source_known", torch.zeros(self.classes, device=device, dtype=torch.bool))
        if self.config.source_free:
            rows = self.source_model.get_submodule(self.head).weight
            assert isinstance(rows, Tensor)
            self.source_prototypes.copy_(rows.detach().flatten(1))
            self.source_known.fill_(True)

    @classmethod
    def source_for(cls, fields: Mapping[str, Any]) -> str:
        return "none" if fields.get("source_free") else cls.traits.source

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        found = ((self.run_features(self.source_model, x)[0], self._check_labels(y).to(x.device)) for x, y in source)
        prototypes, known = class_means(found, torch.zeros_like(self.source_prototypes))
        if not known.any():
            raise InputError("RMT needs a prototype for each class, and there were no source data. Give some batches.")
        self.source_prototypes.copy_(prototypes)
        self.source_known.copy_(known)

    def _check_labels(self, label: Tensor) -> Tensor:
        if label.dim() != 1 or label.min() < 0 or label.max() >= self.classes:
            raise InputError(
                f"Labels of source data must be (N,), whole numbers from 0 to {self.classes - 1}. Got shape "
                f"{tuple(label.shape)}, from {label.min()} to {label.max()}."
            )
        return label

    def restore_source(self) -> None:
        """As for every method; the projector goes back to its start."""
        super().restore_source()
        draw_projector(self.projector, self.seed)

    def adapt(self, x: Tensor) -> Step:
        features, student = self.run_features(self.student, x, grad=True)
        (view,) = self.make_views(x)
        view_features, view_student = self.run_features(self.student, view, grad=True)
        teacher = self.run(self.teacher, x)

        prototypes = nearest(features.detach(), self.source_prototypes, self.source_known)
        projected = [F.normalize(self.projector(each), dim=1) for each in (prototypes, features, view_features)]
        contrast = contrastive_loss(projected, self.config.temperature)
        loss = self.learn(self_training(student, view_student, teacher).mean() + self.config.contrast * contrast)
        self.follow_student()
        return Step(self.answer(lambda: student, lambda: teacher), {"loss": loss, "contrast": contrast})


def class_means(source: Iterable[tuple[Tensor, Tensor]], total: Tensor) -> tuple[Tensor, Tensor]:
    """The mean feature of each class, (C, D), and whether the class was there, (C,); `total` holds zeros, (C, D)."""
    count = total.new_zeros(len(total))
    for features, label in source:
        total = total.index_add(0, label, features)
        count = count.index_add(0, label, torch.ones_like(features[:, 0]))
    return total / count.clamp(min=1)[:, None], count > 0
