"""CoTTA: a mean teacher, averaged over augmented views, with stochastic restore.

Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022.

    threshold       p_th: views are averaged if the source's mean confidence is below it
    pseudo-label    t = mean over augmented views of teacher(view(x)); else the un-augmented teacher(x)
    consistency     CE(softmax t, student(x)); on ImageNet half of it in each direction
    teacher         teacher <- 0.999 teacher + 0.001 student, all parameters
    restore         each student scalar returns to its source value with probability `restore`
    returns         t, or as `answers` says (before the update)

Departures: the released CIFAR code computes the views even if it throws them away; we do not. Restored scalars are
drawn as indices, not as a mask: the same distribution. All parameters learn and are restored, not only those that are
named weight or bias. The released code runs with dropout on, ours without.
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
    """Mean teacher with averaged augmented views and stochastic restore."""

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
        return Step(self.answer(lambda: student, lambda: teacher), {"loss": loss, "views": torch.tensor(views)})
