"""DSS: Dynamic Sample Selection, a mean teacher that learns from each sample what it is good for.

Wang et al., "Continual Test-time Domain Adaptation via Dynamic Sample Selection", WACV 2024.

    Eq. 1   dynamic_threshold    pi <- lambda pi + (1 - lambda) mean confidence
            domain_start         pi <- (pi + 1/C) / 2 when a domain is known to start
    Eq. 2   class_ratio          tau_c = delta_c / max delta
    Eq. 3   class_confidence     delta_c, the confidence that fell to class c
    Eq. 4   class_threshold      pi_c = pi tau_c; high quality is confidence >= pi_c
    Eq. 5   sharpen              y^(1/Tp), renormalised
    Eq. 6   positive_loss        cross-entropy with the sharpened pseudo-label, high-quality samples only
    Eq. 7   negative_loss        -sum_k [y_k < alpha] log(1 - p_k), all samples
    Eq. 8   the sum of both, in `adapt`
    Eq. 9   the teacher's moving average, `teacher.MeanTeacher.follow_student`

Eq. 1 to 4 are in `core.thresholds`, beside the rules that `threshold` offers in their place.

Departures: Eq. 5 prints the exponent Tp; the text and the work it cites mean 1/Tp (`literal_exponent` for the print).
Eq. 3 divides by N, which cancels, so delta is a per-class sum though the words say average: `delta` offers both, and an
average over batches. lambda is not given: 0.9. Optimiser, augmentation threshold and restore are CoTTA's. The text
predicts both before and after the update, Algorithm 1 before (`predict_after` for the other). Reductions: positive,
mean over the selected; negative, sum over classes, mean over all samples, 1 - p at least 1e-5. No selected sample: the
positive loss is 0.

If nobody can tell when a domain starts, `DSS(model, boundaries="detected")` finds out, see `core.drift`. Over twenty
rounds of the fifteen corruptions (embedded default, 1,200 batches) DSS's error is 18.7 % in the first round and 18.8 %
in the last, 18.9 % at most (`results/rounds.csv`), so nothing pulls the teacher back to the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.core import thresholds
from ctta.core.adapter import Step
from ctta.core.losses import consistency, cross_entropy, masked_mean
from ctta.core.settings import Traits
from ctta.core.teacher import MEAN_TEACHER_PRESETS, MeanTeacher, MeanTeacherConfig, mean_confidence
from ctta.core.thresholds import State


@dataclass(frozen=True)
class DSSConfig(MeanTeacherConfig):
    """Settings of DSS. The defaults are the paper's."""

    lambda_: float = setting(0.9, "Decay of the threshold's moving average.", symbol="lambda", low=0.0, high=1.0)
    delta: Literal["sum", "mean", "running"] = setting(
        "sum",
        "Class confidence: summed over the batch as printed, averaged per class, or that average over batches.",
        symbol="delta",
    )
    threshold: float | thresholds.Rule = setting(  # noqa: RUF009
        "dynamic",
        "How samples are selected: by the dynamic class-wise threshold or by another rule, see `core.thresholds`; a "
        "number is one fixed threshold for all classes.",
        symbol="pi",
        low=0.0,
        high=1.0,
    )
    level: float | None = setting(
        None, "Confidence that fixed, flexmatch, adamatch (0.95) and ups (0.7) ask for.", low=0.0, high=1.0
    )
    temperature: float = setting(
        0.6, "Sharpening of the pseudo-label; lower is sharper.", symbol="Tp", low=0.0, open_low=True
    )
    literal_exponent: bool = setting(False, "Sharpen with the exponent Tp as printed, instead of 1/Tp.")
    alpha: float = setting(
        0.05, "A class below this probability is a complementary label.", symbol="alpha", low=0.0, high=1.0
    )
    parts: Literal["dt", "dt+pl", "dt+pl+nl"] = setting(
        "dt+pl+nl",
        "Loss: CoTTA's consistency on selected samples, positive learning on them, or that and negative learning.",
    )
    predict_after: bool = setting(False, "Predict with the teacher as it is after the update.")


class DSS(MeanTeacher):
    """Splits each batch by a threshold that follows the stream: positive learning on the good part, negative on all."""

    name = "dss"
    title = "DSS"
    traits = Traits("all parameters", forwards=(3, 34), backwards=(1, 1), boundaries=True)
    config_type = DSSConfig
    config: DSSConfig
    presets = MEAN_TEACHER_PRESETS
    threshold: Tensor
    class_average: Tensor
    variance: Tensor  # of the confidence, for softmatch

    def build(self) -> None:
        super().build()
        state = thresholds.start(self.classes, *self.placement)
        self.register_buffer("threshold", state.level)
        self.register_buffer("class_average", state.classes)
        if self.config.threshold == "softmatch":
            self.register_buffer("variance", state.variance)

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        seen = super().observe(x)
        if self.config.threshold != "adamatch" or seen:
            return seen
        return {"source_confidence": mean_confidence(self.expected(x))}

    def begin_domain(self) -> None:
        self.threshold.copy_(thresholds.domain_start(self.threshold, self.classes))

    def adapt(self, x: Tensor) -> Step:
        config = self.config
        seen: list[Tensor] | None = [] if config.threshold == "ups" else None
        teacher, views = self.pseudo_label(x, seen)
        pseudo = teacher.softmax(1)
        weight, complementary = self.select(pseudo, torch.stack(seen or [teacher]))
        student = self.run(self.student, x, grad=True)

        if config.parts == "dt":
            loss = masked_mean(consistency(teacher, student, symmetric=config.symmetric), weight)
        else:
            loss = positive_loss(sharpen(pseudo, config.temperature, literal=config.literal_exponent), student, weight)
        if config.parts == "dt+pl+nl":
            loss = loss + negative_loss(complementary, student)
        loss = self.learn(loss)
        self.follow_student()
        self.restore()

        if config.predict_after:
            logits = self.answer(lambda: self.run(self.student, x), lambda: self.averaged(self.teacher, x, views))
        else:
            logits = self.answer(lambda: student, lambda: teacher)
        confidence, selected = pseudo.amax(1), weight >= 0.5
        info = {
            "loss": loss,
            "threshold": self.threshold.clone(),
            "selected": selected.to(x.dtype).mean(),
            "views": torch.tensor(views),
            "confidence": confidence.mean(),
        }
        return Step(logits, info, {"confidence": confidence, "selected": selected})

    def select(self, pseudo: Tensor, views: Tensor) -> tuple[Tensor, Tensor]:
        """The weight of each sample, (N,), and its complementary labels, (N, C); what the rule carries moves first."""
        config, rule = self.config, self.config.threshold
        level = thresholds.LEVEL if config.level is None else config.level
        state = State(self.threshold, self.class_average, self.variance if rule == "softmatch" else self.threshold)
        complementary = pseudo < config.alpha
        match rule:
            case "dynamic":
                weight, state = thresholds.dynamic(pseudo, state, config.lambda_, config.delta)
            case "fixed":
                weight, state = thresholds.fixed(pseudo, state, level)
            case "flexmatch":
                weight, state = thresholds.flexmatch(pseudo, state, level)
            case "freematch":
                weight, state = thresholds.freematch(pseudo, state, config.lambda_)
            case "softmatch":
                weight, state = thresholds.softmatch(pseudo, state, config.lambda_)
                self.variance.copy_(state.variance)
            case "adamatch":
                weight, state = thresholds.adamatch(pseudo, state, level, self.observed["source_confidence"])
            case "ups":
                level = thresholds.SURE if config.level is None else config.level
                weight, complementary = thresholds.ups(views, level, config.alpha)
            case "none":
                weight = torch.ones_like(pseudo[:, 0], dtype=torch.bool)
            case _:
                weight, state = thresholds.fixed(pseudo, state, rule)
        self.threshold.copy_(state.level)
        self.class_average.copy_(state.classes)
        return weight, complementary


def sharpen(pseudo: Tensor, temperature: float, *, literal: bool = False) -> Tensor:
    """Eq. 5: lower temperature, more certain labels."""
    # The softmax of e log y is y^e over its sum, and does not underflow.
    return ((temperature if literal else 1 / temperature) * pseudo.log()).softmax(1)


def positive_loss(label: Tensor, student: Tensor, weight: Tensor) -> Tensor:
    """Eq. 6: the student follows the sharpened pseudo-label on the selected samples; 0 if there are none."""
    return masked_mean(cross_entropy(label, student), weight)


def negative_loss(complementary: Tensor, student: Tensor) -> Tensor:
    """Eq. 7: the student moves away from every class that the pseudo-label all but rules out."""
    return -(complementary.to(student.dtype) * (1 - student.softmax(1)).clamp(min=1e-5).log()).sum(1).mean()
