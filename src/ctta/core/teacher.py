"""Student, teacher and source: the gate, the averaged views, the moving average and the restore.

Shared by the methods that learn from a mean teacher.

    pseudo_label   the teacher's answer, averaged over views where the source is unsure
    follow         teacher <- ema teacher + (1 - ema) student
    restore        each student scalar goes back to its source value with a small probability
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.base.randomness import Randomness
from ctta.core import networks as layers
from ctta.core.adapter import PAPER, Adapter, Normalization, Training, log


@dataclass(frozen=True)
class MeanTeacherConfig(Normalization, Training):
    """Settings of every mean teacher."""

    views: int = setting(32, "How many views are averaged where the gate asks for them.", low=1)
    draw: Literal["batch", "sample"] = setting(
        "batch", "One draw of a view for the whole batch, or one for each sample."
    )
    opposite: bool = setting(
        False, "Every second view is the opposite of the one before: turned the other way, mirrored or not, and so on."
    )
    plain: float | Literal["weighed"] = setting(
        0.0,
        "Share of the plain batch in the average over views; or weighed, batch by batch, by how much surer the teacher "
        "is without them.",
        low=0.0,
        high=1.0,
    )
    gate: float = setting(
        0.92,
        "Views are averaged while the source's mean confidence is below this; 0 means never, 1 always.",
        low=0.0,
        high=1.0,
    )
    ema: float = setting(0.999, "How much of itself the teacher keeps at each step.", symbol="beta", low=0.0, high=1.0)
    restore: float = setting(0.01, "Probability that a student scalar returns to its source value.", low=0.0, high=1.0)
    symmetric: bool = setting(False, "Consistency loss in both directions, as CoTTA has it on ImageNet.")


# CoTTA's values per data set, which DSS follows. Those for clouds are ours.
MEAN_TEACHER_PRESETS: dict[str, dict[str, Any]] = {
    "cifar10": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "gate": 0.92},
    "cifar100": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "gate": 0.72},
    "imagenet": {"optimizer": "sgd", "lr": 0.01, "restore": 0.001, "gate": 0.1, "symmetric": True},
    "clouds": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "gate": 0.92, "draw": "sample"},
}

# As good with few views, over many corruptions: worse on noise, better on contrast. One draw a sample instead of one a
# batch, in opposite pairs, and the plain batch is half of the average. So few are made for every batch, without a gate.
LEAN: dict[str, Any] = {"views": 4, "draw": "sample", "opposite": True, "plain": 0.5, "gate": 1.0}
# The same, and views count for less where they make the teacher unsure (contrast, blur), for more where not (noise).
WEIGHED: dict[str, Any] = {**LEAN, "plain": "weighed"}
LEAST_SHARE, SHARE_SLOPE = 0.15, 0.7  # chosen on corruptions that no table reports


class MeanTeacher(Adapter):
    """A student that learns, a teacher that follows it slowly, and the source they both start at."""

    config: MeanTeacherConfig
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {PAPER: {}, "lean": LEAN, "weighed": WEIGHED}

    def build(self) -> None:
        self.student, self.teacher = self.copy_source(quick=True), self.copy_source(quick=True)
        self.train_on(self.student.parameters())

    def review(self) -> None:
        if 0 < self.config.gate <= 1 / self.classes:
            log.warning(
                "%s: the gate is %g, and with %d classes mean confidence is never below it, so views are never "
                "averaged. ctta.calibrate_gate(model, source_batches) gives the gate that fits.",
                self.name,
                self.config.gate,
                self.classes,
            )

    def answer(self, x: Tensor) -> Tensor:
        return self.run(self.teacher, x)

    def pseudo_label(self, x: Tensor) -> tuple[Tensor, int]:
        """The teacher's logits, and how many views were averaged for them (0: the plain batch)."""
        views = self.config.views if self._views_wanted(x) else 0
        return self.averaged(self.teacher, x, views), views

    def averaged(self, network: nn.Module, x: Tensor, views: int) -> Tensor:
        """Mean of the logits over `views` views, each normalised with its own statistics; 0 views: the plain batch.

        The plain batch has a share in it where `plain` says so.
        """
        share = self.config.plain
        if views == 0 or share == 1:
            return self.run(network, x)
        total = torch.zeros(len(x), self.classes, dtype=x.dtype, device=x.device)
        confidence = total.new_zeros(())
        for logits in self.run_views(network, x, views):
            total += logits
            if share == "weighed":
                confidence += mean_confidence(logits)
        mean = total / views
        if share == 0:
            return mean
        plain = self.run(network, x)
        if share == "weighed":
            return mean.lerp(plain, plain_share(mean_confidence(plain), confidence / views))
        return mean.lerp(plain, share)

    def follow(self) -> None:
        """Eq. 9 of the paper: the teacher moves towards the student. After a skipped step it stays."""
        layers.move(self.teacher.parameters(), self.student.parameters(), (1 - self.config.ema) * self.learned)

    def restore(self) -> None:
        """CoTTA's stochastic restore."""
        pairs = list(zip(self.student.parameters(), self.source_model.parameters(), strict=True))
        stochastic_restore(pairs, self.config.restore, self.random)

    def _views_wanted(self, x: Tensor) -> bool:
        """The gate. The source is asked only where its answer can matter."""
        gate = self.config.gate
        if gate in (0.0, 1.0):
            return gate == 1.0
        (confidence,) = self.check(mean_confidence(self.run(self.source_model, x)))
        return confidence < gate


def mean_confidence(logits: Tensor) -> Tensor:
    """Batch mean of the largest probability."""
    return logits.softmax(1).amax(1).mean()


def plain_share(plain: Tensor, views: Tensor) -> Tensor:
    """The plain batch's share where it is weighed: by how much more doubt a view leaves, from mean confidences."""
    more_doubt = (plain - views) / (1 - plain).clamp(min=1e-6)
    return (LEAST_SHARE + SHARE_SLOPE * more_doubt).clamp(0, 1)


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
            # Indexing, unlike put_, is allowed where deterministic algorithms are asked for.
            if weights.is_contiguous() and source.is_contiguous():
                weights.view(-1)[index] = source.view(-1)[index]
            else:
                weights[torch.unravel_index(index, weights.shape)] = source.take(index)


@torch.no_grad()
def calibrate_gate(model: nn.Module, source_batches: Iterable[Tensor | Sequence[Tensor]]) -> float:
    """The gate for a model of one's own: the 5 % quantile of its confidence on source images, minus .05.

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
        raise InputError("The gate is read off source images and there were none. Give at least one batch.")
    return max(0.0, torch.cat(confidence).float().quantile(0.05).item() - 0.05)
