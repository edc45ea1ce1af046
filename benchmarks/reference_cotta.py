"""CoTTA as public code runs it, without optimisation: the baseline of the timings. It shares no code with `ctta`.

It has three copies of the model in float32 and in the layout they came in. Augmentations are made one at a time and
operation by operation, on every batch, whether the threshold asks for them or not. The moving average is a loop, the
restore a mask.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.reference_views import batch_view, draw_parameters


class ReferenceCoTTA:
    """`reference(x)` predicts and adapts."""

    def __init__(
        self,
        model: nn.Module,
        *,
        views: int = 32,
        lr: float = 1e-3,
        augmentation_threshold: float = 0.92,
        ema: float = 0.999,
        restore: float = 0.01,
        view: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.student, self.teacher, self.anchor = (with_batch_statistics(model) for _ in range(3))
        self.student.requires_grad_(True)
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=lr)
        self.views, self.threshold, self.ema, self.restore_share = views, augmentation_threshold, ema, restore
        self.view = view or random_view(seed=0)
        self.forwards = views + 3  # with the student, the anchor, and the teacher on the un-augmented batch

    def __call__(self, x: Tensor) -> Tensor:
        student = self.student(x)
        teacher = self.pseudo_label(x)
        loss = -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.follow()
        self.restore()
        return teacher

    @torch.no_grad()
    def pseudo_label(self, x: Tensor) -> Tensor:
        """The mean over augmentations if the anchor is unsure, else the un-augmented prediction; both are computed."""
        confidence = self.anchor(x).softmax(1).amax(1).mean()
        plain = self.teacher(x)
        averaged = torch.stack([self.teacher(self.view(x)) for _ in range(self.views)]).mean(0)
        return averaged if confidence < self.threshold else plain

    @torch.no_grad()
    def follow(self) -> None:
        """Update the moving average, tensor by tensor."""
        for teacher, student in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            teacher.copy_(self.ema * teacher + (1 - self.ema) * student)

    @torch.no_grad()
    def restore(self) -> None:
        """Restore with a random number and a mask per scalar."""
        for student, source in zip(self.student.parameters(), self.anchor.parameters(), strict=True):
            mask = (torch.rand(student.shape) < self.restore_share).to(student.dtype)
            student.copy_(source * mask + student * (1 - mask))


def with_batch_statistics(model: nn.Module) -> nn.Module:
    """A frozen copy whose BatchNorm layers have no running statistics, and so use the batch's."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None
    return model


def random_view(seed: int) -> Callable[[Tensor], Tensor]:
    """An augmentation with one draw per call, for the whole batch."""
    source = random.Random(seed)
    return lambda x: batch_view(x, draw_parameters(x.shape[2], x.shape[3], source))
