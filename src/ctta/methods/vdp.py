"""VDP: the network stays as it is; two prompts that are added to the input learn.

Gan et al., "Decorate the Newcomers: Visual Domain Prompt for Continual Test Time Adaptation", AAAI 2023.

    prompted        x + specific + agnostic, on a border of the image
    specific        the prompt of the current domain: learns from CE(teacher(x), student(view x))
    agnostic        the prompt of all domains: the same loss, and the homeostasis penalty
    homeostasis     sum_i L_i (a_i - a_i*)^2: entries that mattered for past domains stay at a*, their value at the end
                    of the last one
    importance      L grows at the end of a domain by sum_t -g_t d_t / ((sum_t d_t)^2 + xi), g the gradient of the
                    cross-entropy at a step and d what the step changed
    teacher         the same network; its prompts follow the student's
    returns         the teacher's logits, or as `answers` says (before the update)

Departures: there is no public code, and the paper's constants were not found. The prompt's place (a border of an eighth
of the size), rates, the teacher's decay and the form of the importance, which is that of synaptic intelligence, are
ours; so is the augmented view, CoTTA's, without which student and teacher would agree from the start. The paper finds
the start of a domain by a change of confidence; here it is known or `boundaries="detected"`. Networks with BatchNorm
have batch statistics. The prompts of a point cloud move all of its points alike.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.core.adapter import Step
from ctta.core.export import Summed
from ctta.core.losses import cross_entropy
from ctta.core.settings import (
    Augmentation,
    Normalization,
    OptimizerSettings,
    Presets,
    SampleShape,
    Traits,
    same_presets,
)
from ctta.core.teacher import TeacherAdapter, TeacherSettings

XI = 1e-3  # keeps the importance of entries that hardly moved finite


@dataclass(frozen=True)
class VDPConfig(SampleShape, Augmentation, TeacherSettings, Normalization, OptimizerSettings):
    """Settings of VDP."""

    border: float = setting(
        0.125, "Width of the prompts' border, as a part of the image's size; 0.5: the whole.", low=0.0, high=0.5
    )
    homeostasis: float = setting(1.0, "Weight of the homeostasis penalty.", low=0.0)


class Prompts(nn.Module):
    """What is added to an input."""

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.specific, self.agnostic = nn.Parameter(like.clone()), nn.Parameter(like.clone())


class Prompted(nn.Module):
    """A network that sees its input with something added."""

    added: Tensor

    def __init__(self, network: nn.Module, added: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("added", added)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x + self.added)
        return logits


class VDP(TeacherAdapter):
    """Learns what to add to the input, for this domain and for all."""

    name = "vdp"
    title = "VDP"
    traits = Traits("input prompts", forwards=(2, 2), backwards=(1, 1), boundaries=True)
    config_type = VDPConfig
    config: VDPConfig
    presets: ClassVar[Presets] = {  # ours: the paper's were not found
        **same_presets(optimizer="adam", lr=1e-3, ema=0.99),
        "clouds": {"optimizer": "adam", "lr": 5e-3, "ema": 0.99, "draw": "sample"},
    }
    student: Prompts
    teacher: Prompts
    source_mask: Tensor
    anchor: Tensor  # a*
    importance: Tensor  # L
    path: Tensor  # -sum of g d in this domain

    def build(self) -> None:
        mask = border_mask(self.config.sample or (), self.config.border, *self.placement)
        nothing = torch.zeros_like(mask)
        self.student, self.teacher = Prompts(nothing), Prompts(nothing)
        self.train_on(self.student.parameters())
        self.register_buffer("source_mask", mask)
        for name in ("anchor", "importance", "path"):
            self.register_buffer(name, nothing.clone())

    def restore_source(self) -> None:
        """As for every method; the prompts go back to nothing."""
        super().restore_source()
        with torch.no_grad():
            for prompt in (*self.student.parameters(), *self.teacher.parameters()):
                prompt.zero_()

    @property
    def network(self) -> nn.Module:
        student, teacher = (Prompted(self.source_model, self.added(each).detach()) for each in self.prompts)
        match self.config.answers:
            case "student":
                return student
            case "teacher":
                return teacher
            case "both":
                return Summed(copy.deepcopy(student), teacher)  # each is to have statistics of its own

    @property
    def prompts(self) -> tuple[Prompts, Prompts]:
        """The student's and the teacher's."""
        return self.student, self.teacher

    def added(self, prompts: Prompts) -> Tensor:
        """What prompts add to an input."""
        return self.source_mask * (prompts.specific + prompts.agnostic)

    def logits(self, x: Tensor) -> Tensor:
        student, teacher = self.prompts
        return self.answer(lambda: self.look(student, x), lambda: self.look(teacher, x))

    def look(self, prompts: Prompts, x: Tensor, *, grad: bool = False) -> Tensor:
        """The network's logits for the prompted batch."""
        added = self.added(prompts)
        if added.dim() == 3 and added.shape != x.shape[1:]:
            if self.batches:
                shapes = f"{tuple(added.shape)}; this batch has {tuple(x.shape[1:])}"
                raise InputError(f"VDP's prompts have the shape of an image, so all have one, {shapes}. Resize them.")
            return self.run(self.source_model, x, grad=grad)  # nothing is learned yet, not even the shape
        return self.run(self.source_model, x + added, grad=grad)

    def begin_domain(self) -> None:
        """What the last domain taught becomes importance, and the place to stay at."""
        with torch.no_grad():
            moved = self.student.agnostic - self.anchor
            self.importance += gained_importance(self.path, moved)
            self.anchor.copy_(self.student.agnostic)
            self.path.zero_()

    def adapt(self, x: Tensor) -> Step:
        teacher = self.look(self.teacher, x)
        logits = self.answer(lambda: self.look(self.student, x), lambda: teacher)
        (view,) = self.make_views(x)
        student = self.look(self.student, view, grad=True)
        agnostic = self.student.agnostic
        penalty = self.config.homeostasis * homeostasis(agnostic, self.anchor, self.importance)
        loss = cross_entropy(teacher.softmax(1), student).mean() + penalty
        self.differentiate(loss)
        with torch.no_grad():
            before = agnostic.clone()
            pull = 2 * self.config.homeostasis * self.importance * (before - self.anchor)
            gradient = (torch.zeros_like(before) if agnostic.grad is None else agnostic.grad) - pull
        self.descend()
        self.path.sub_(gradient * (agnostic.detach() - before))
        self.follow_student()
        return Step(logits, {"loss": loss.detach(), "penalty": penalty.detach()})


def homeostasis(prompt: Tensor, anchor: Tensor, importance: Tensor) -> Tensor:
    """How far a prompt is from where it was, each entry weighted by its importance."""
    return (importance * (prompt - anchor).square()).sum()


def gained_importance(path: Tensor, moved: Tensor) -> Tensor:
    """How much each entry lowered the loss in a domain, for the way that it went; never negative."""
    return (path / (moved.square() + XI)).clamp(min=0)


def border_mask(sample: tuple[int, ...], border: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """1 where a prompt is, else 0; with the shape of an image, (C, H, W), or (1, 3) for all points of a cloud."""
    if len(sample) != 3:
        return torch.ones(1, *sample[1:], device=device, dtype=dtype)
    mask = torch.ones(sample, device=device, dtype=dtype)
    high, wide = (max(round(border * side), 1) for side in sample[1:])
    mask[:, high : sample[1] - high, wide : sample[2] - wide] = 0
    return mask
