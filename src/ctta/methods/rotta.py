"""RoTTA: a mean teacher that learns from a small memory, balanced over classes and kept young and certain.

Yuan et al., "Robust Test-Time Adaptation in Dynamic Scenarios", CVPR 2023.

    Eq. 3, 4  robust statistics  mu <- 0.95 mu + 0.05 mu of the batch, `core.statistics`, in passes over the memory only
    Eq. 6     score              1 / (1 + exp(-age / N)) + H / ln C: how much a sample of the memory deserves to go
              insert             a class has at most N / C places; else the worst sample of the class, or of the largest
                                 ones if the memory is full, goes if it is worse than the new one
    Eq. 8     timeliness         exp(-age / N) / (1 + exp(-age / N)), the weight of a sample
    Eq. 9     weighted mean of CE(teacher(x), student(view x)) over the memory, after every 64 samples
    Eq. 10    teacher <- 0.999 teacher + 0.001 student
    learns    weight and bias of every norm layer
    returns   the teacher's logits with the statistics as they are, or as `answers` says (before the update)

Departures: of equally bad samples any may go; their order in the memory is not the released code's, which a view drawn
for the whole batch does not see. The view is CoTTA's, as in the released code, which updates with dropout on, ours
without, and trains BatchNorm layers only. Scores are computed in double precision, as there, if the device has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.base.limits import VECTORS
from ctta.core import statistics as norms
from ctta.core.adapter import Step
from ctta.core.losses import cross_entropy
from ctta.core.networks import norm_parameters
from ctta.core.selection import first_nonzero
from ctta.core.settings import Augmentation, OptimizerSettings, Presets, SampleShape, Traits, same_presets
from ctta.core.statistics import Statistics
from ctta.core.teacher import TeacherAdapter, TeacherSettings


@dataclass(frozen=True)
class RoTTAConfig(SampleShape, Augmentation, TeacherSettings, OptimizerSettings):
    """Settings of RoTTA."""

    memory: int = setting(64, "Samples that the memory holds.", symbol="N", low=1, high=VECTORS)
    every: int = setting(64, "Samples between two updates.", low=1)
    age_weight: float = setting(1.0, "Weight of age in the score of a sample.", symbol="lambda_t", low=0.0)
    doubt_weight: float = setting(1.0, "Weight of entropy in the score of a sample.", symbol="lambda_u", low=0.0)


class Memory(NamedTuple):
    """What is known of the samples in the memory, (N,) each; an empty place has the number of classes as its label."""

    row: Tensor  # where the sample is
    label: Tensor
    age: Tensor  # in samples
    doubt: Tensor  # entropy over ln C


class RoTTA(TeacherAdapter):
    """Learns from a class-balanced memory of recent, certain samples."""

    name = "rotta"
    title = "RoTTA"
    traits = Traits("norm parameters", forwards=(1, 3), backwards=(0, 1))
    whole_batches = False
    config_type = RoTTAConfig
    config: RoTTAConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3),
        "clouds": {"optimizer": "adam", "lr": 1e-3, "draw": "sample"},
    }
    needs_norm = True
    statistics: Statistics = "robust"
    seen: Tensor
    memory: Tensor
    memory_label: Tensor
    memory_age: Tensor
    memory_doubt: Tensor

    def build(self) -> None:
        self.student, self.teacher = self.copy_source(), self.copy_source()
        for network in (self.student, self.teacher):
            norms.use_statistics(network, "average")
        self.train_on(norm_parameters(self.student))
        (device, dtype), size = self.placement, self.config.memory
        self.register_buffer("seen", torch.zeros((), device=device, dtype=torch.int64))
        self.register_buffer("memory", torch.zeros(size, *(self.config.sample or ()), device=device, dtype=dtype))
        self.register_buffer("memory_label", torch.full((size,), self.classes, device=device))
        self.register_buffer("memory_age", torch.zeros(size, device=device, dtype=torch.int64))
        exact = torch.float32 if device.type == "mps" else torch.float64  # in which old samples do not score alike
        self.register_buffer("memory_doubt", torch.zeros(size, device=device, dtype=exact))

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        """The teacher's prediction, the memory at each update and after the batch, and what Python must know of it."""
        if x.shape[1:] != self.memory.shape[1:]:
            shapes = f"{tuple(self.memory.shape[1:])}; this batch has {tuple(x.shape[1:])}"
            raise InputError(f"RoTTA keeps samples in a memory, so all have one shape, {shapes}. Resize them.")
        logits = self.run(self.teacher, x)
        with torch.no_grad():
            memory, moments = self.remember(logits)
        updates = torch.div(self.seen + len(x), self.config.every, rounding_mode="floor")
        updates = updates - torch.div(self.seen, self.config.every, rounding_mode="floor")
        filled = {f"filled {k}": (moment[1] != self.classes).sum() for k, moment in enumerate(moments)}
        known = dict(zip(("row", "label", "age", "doubt"), memory, strict=True))
        return {"logits": logits, "moments": moments, "updates": updates, **filled, **known}

    def remember(self, logits: Tensor) -> tuple[Memory, Tensor]:
        """The memory after the batch, and rows, labels and ages at each update, (K, 3, N)."""
        size, every = self.config.memory, self.config.every
        probability = logits.softmax(1)
        doubt = -(probability * (probability + 1e-6).log()).sum(1).to(self.memory_doubt.dtype)
        doubt = doubt / max(math.log(self.classes), 1e-12)
        number = torch.arange(max(size, len(logits)), device=logits.device)
        memory = Memory(number[:size], self.memory_label, self.memory_age, self.memory_doubt)
        slot = torch.div(self.seen % every + number[: len(logits)], every, rounding_mode="floor")
        moments = self.memory_age.new_zeros((every + len(logits) - 2) // every + 1, 3, size)
        for i, label in enumerate(logits.argmax(1)):
            memory = insert(memory, size + i, label, doubt[i], self.classes, self.config)
            now = torch.stack([memory.row, memory.label, memory.age])
            moments.index_copy_(0, slot[i : i + 1], now[None])
        return memory, moments

    def adapt(self, x: Tensor) -> Step:
        found = self.observed
        logits = self.answer(lambda: self.run(self.student, x), lambda: found["logits"])
        samples, losses = torch.cat([self.memory, x]), []
        for k in range(int(found["updates"])):
            row, label, age = found["moments"][k]
            order = first_nonzero(label != self.classes, int(found[f"filled {k}"]))
            losses.append(self.learn_from(samples[row[order]], age[order]))
        self.memory.copy_(samples[found["row"]])
        self.memory_label.copy_(found["label"])
        self.memory_age.copy_(found["age"])
        self.memory_doubt.copy_(found["doubt"])
        self.seen += len(x)
        return Step(logits, {"loss": torch.stack(losses).mean()} if losses else {})

    def learn_from(self, samples: Tensor, age: Tensor) -> Tensor:
        """One update with the samples of the memory."""
        for network in (self.student, self.teacher):
            norms.use_statistics(network, "robust")
        (view,) = self.make_views(samples)
        target = self.run(self.teacher, samples).softmax(1)
        loss = cross_entropy(target, self.run(self.student, view, grad=True))
        found = self.learn((timeliness(age.to(samples.dtype) / self.config.memory) * loss).mean())
        self.follow_student()
        norms.commit_statistics(self)
        for network in (self.student, self.teacher):
            norms.use_statistics(network, "average")
        return found


def insert(memory: Memory, row: int, label: Tensor, doubt: Tensor, classes: int, config: RoTTAConfig) -> Memory:
    """The memory with a new sample in an empty place, or in that of a worse one, or without it; all become older."""
    size = len(memory.row)
    filled, mine = memory.label != classes, memory.label == label
    counts = doubt.new_zeros(classes + 1).index_add(0, memory.label, torch.ones_like(memory.doubt))[:classes]
    rare, full = mine.sum() < size / classes, filled.all()
    largest = (counts == counts.max())[memory.label.clamp(max=classes - 1)] & filled
    rivals = score(memory.age, memory.doubt, size, config)
    rivals = rivals.masked_fill(~torch.where(rare, largest, mine), -torch.inf)
    free = rare & ~full
    place = torch.where(free, filled.to(torch.uint8).argmin(), rivals.argmax())
    accepted = free | (rivals.max() > score(torch.zeros_like(label), doubt, size, config))
    hit = (torch.arange(size, device=label.device) == place) & accepted
    return Memory(
        torch.where(hit, row, memory.row),
        torch.where(hit, label, memory.label),
        torch.where(hit, 0, memory.age) + (filled | hit),
        torch.where(hit, doubt, memory.doubt),
    )


def score(age: Tensor, doubt: Tensor, size: int, config: RoTTAConfig) -> Tensor:
    """Eq. 6: the higher, the sooner a sample goes; `doubt` is its entropy over ln C."""
    return config.age_weight * torch.sigmoid(age.to(doubt.dtype) / size) + config.doubt_weight * doubt


def timeliness(age: Tensor) -> Tensor:
    """Eq. 8: the weight of a sample by its age, in memories."""
    return (-age).exp() / (1 + (-age).exp())
