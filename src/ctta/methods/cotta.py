"""CoTTA: a mean teacher, averaged over views, with stochastic restore.

Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022.

    gate            views are averaged while the source's mean confidence is below it
    pseudo-label    t = mean over views of teacher(view(x)); the plain teacher(x) where the gate is closed
    consistency     CE(softmax t, student(x)); on ImageNet half of it in each direction
    teacher         teacher <- .999 teacher + .001 student, all parameters
    restore         each student scalar returns to its source value with probability `restore`
    returns         t (before the update)

Departures: the released CIFAR code computes the views even where it throws them away; we do not. Restored scalars are
drawn as indices, not as a mask: the same distribution. All parameters are restored, not only those that are named
weight or bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ctta.core.adapter import Step
from ctta.core.losses import consistency
from ctta.core.settings import Traits
from ctta.core.teacher import MEAN_TEACHER_PRESETS, MeanTeacher, MeanTeacherConfig


@dataclass(frozen=True)
class CoTTAConfig(MeanTeacherConfig):
    """Settings of CoTTA."""


class CoTTA(MeanTeacher):
    """Learns from an averaged teacher and never forgets the source."""

    name = "cotta"
    title = "CoTTA"
    traits = Traits("all parameters", forwards=(3, 34), backwards=(1, 1))
    config_type = CoTTAConfig
    config: CoTTAConfig
    presets = MEAN_TEACHER_PRESETS

    def adapt(self, x: Tensor) -> Step:
        teacher, views = self.pseudo_label(x)
        student = self.run(self.student, x, grad=True)
        loss = self.learn(consistency(teacher, student, symmetric=self.config.symmetric).mean())
        self.follow_student()
        self.restore()
        return Step(teacher, {"loss": loss, "views": torch.tensor(views)})
