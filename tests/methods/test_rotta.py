"""RoTTA: the memory against the authors' lists, equations by hand, and ten batches against plain torch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from ctta import Guard, InputError, RoTTA
from ctta.methods.rotta import Memory, RoTTAConfig, insert, timeliness
from ctta.testing.networks import CLASSES, make_batch, make_network
from plain import make_decisive, norm_weights


def mirrored(x, random=None):
    """A view without randomness; with none, student and teacher would agree and nothing be learned."""
    return 0.8 * x.flip(3)


class PlainMemory:
    """The class-balanced memory with timeliness and uncertainty, in lists."""

    def __init__(self, capacity):
        self.capacity, self.lists = capacity, [[] for _ in range(CLASSES)]

    def score(self, age, entropy):
        return 1 / (1 + math.exp(-age / self.capacity)) + entropy / math.log(CLASSES)

    def add(self, sample, label, entropy):
        if self.makes_room(label, self.score(0, entropy)):
            self.lists[label].append({"sample": sample, "entropy": entropy, "age": 0})
        for item in self.items():
            item["age"] += 1

    def makes_room(self, label, score):
        if len(self.lists[label]) < self.capacity / CLASSES:
            if len(self.items()) < self.capacity:
                return True
            most = max(map(len, self.lists))
            rivals = [one for one in self.lists if len(one) == most]
        else:
            rivals = [self.lists[label]]
        scored = [(self.score(item["age"], item["entropy"]), one, item) for one in rivals for item in one]
        worst, where, item = max(scored, key=lambda entry: entry[0])
        if worst > score:
            where[:] = [other for other in where if other is not item]
            return True
        return False

    def items(self):
        return [item for one in self.lists for item in one]


def robust(network):
    """Replace BatchNorm by RoTTA's layer."""
    network = copy.deepcopy(network).eval()
    for name in ("bn1", "bn2"):
        setattr(network, name, PlainRobust(getattr(network, name)))
    return network


class PlainRobust(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.weight, self.bias, self.follows = layer.weight, layer.bias, False
        self.mean, self.var = layer.running_mean.clone(), layer.running_var.clone()

    def forward(self, x):
        mean, var = self.mean, self.var
        if self.follows:
            mean = 0.95 * mean + 0.05 * x.mean((0, 2, 3))
            var = 0.95 * var + 0.05 * x.var((0, 2, 3), correction=0)
            self.mean, self.var = mean.detach(), var.detach()
        x = (x - mean.view(-1, 1, 1)) / (var.view(-1, 1, 1) + 1e-5).sqrt()
        return x * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


def follow(network, whether):
    for name in ("bn1", "bn2"):
        getattr(network, name).follows = whether


@pytest.mark.parametrize(("size", "every", "batch"), [(10, 16, 12), (7, 5, 12), (64, 64, 16), (3, 4, 1)])
def test_against_plain_torch(size, every, batch):
    """Several updates per batch, none in some, memories that are full and not."""
    network = make_decisive().double()
    student, teacher = robust(network), robust(network)
    memory, seen = PlainMemory(size), 0
    learned = [p for layer in (student.bn1, student.bn2) for p in (layer.weight, layer.bias)]
    optimizer = torch.optim.Adam(learned, 1e-3)
    adapter = RoTTA(network, preset="cifar10", views=mirrored, memory=size, every=every, ema=0.9)
    close = {"atol": 1e-8, "rtol": 1e-8}
    for x in [make_batch("image_bn", batch, seed).double() * (1 - 0.05 * seed) for seed in range(10)]:
        with torch.no_grad():
            expected = teacher(x)
            p = expected.softmax(1)
            entropy = -(p * (p + 1e-6).log()).sum(1)
        for i in range(batch):
            memory.add(x[i], p[i].argmax().item(), entropy[i].item())
            seen += 1
            if seen % every == 0:
                items = memory.items()
                data, ages = torch.stack([item["sample"] for item in items]), [item["age"] / size for item in items]
                follow(student, True)
                follow(teacher, True)
                target = teacher(data).softmax(1).detach()
                loss = -(target * student(mirrored(data)).log_softmax(1)).sum(1)
                weight = torch.tensor([math.exp(-age) / (1 + math.exp(-age)) for age in ages], dtype=torch.float64)
                optimizer.zero_grad()
                (loss * weight).mean().backward()
                optimizer.step()
                follow(student, False)
                follow(teacher, False)
                with torch.no_grad():
                    for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                        old.copy_(0.9 * old + 0.1 * new)
        torch.testing.assert_close(adapter(x), expected, **close)
        kept = sorted(item["age"] for item in memory.items())
        assert adapter.memory_age[adapter.memory_label < CLASSES].sort().values.tolist() == kept
    torch.testing.assert_close(norm_weights(adapter.student), learned, **close)
    torch.testing.assert_close(adapter.teacher.bn1.stream_var, teacher.bn1.var, **close)


def test_old_and_sure_samples_do_not_score_alike_in_single_precision():
    """Which samples are kept of 4,000 sure ones whose classes come twice in order, as the authors' lists say."""
    adapter, memory = RoTTA(make_network("image_bn"), preset="cifar10", sample=(3, 8, 8)), PlainMemory(64)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(2000 // CLASSES).repeat(2)
    logits = 60 * nn.functional.one_hot(labels, CLASSES) + 3 * torch.rand(len(labels), CLASSES, generator=generator)
    held = Memory(torch.arange(64), adapter.memory_label, adapter.memory_age, adapter.memory_doubt)
    p = logits.softmax(1)
    entropy = -(p * (p + 1e-6).log()).sum(1)
    for i, label in enumerate(labels):
        doubt = entropy[i].to(held.doubt.dtype) / math.log(CLASSES)
        held = insert(held, 64 + i, label, doubt, CLASSES, adapter.config)
        memory.add(64 + i, int(label), float(entropy[i]))
        filled = held.row[held.label != CLASSES].tolist()
        assert sorted(filled) == sorted(item["sample"] for item in memory.items())


def test_timeliness_by_hand():
    assert timeliness(torch.tensor([0.0, math.log(3)])).tolist() == pytest.approx([0.5, 0.25])


def test_samples_of_another_shape_are_refused():
    adapter = RoTTA(make_network("image_bn"))
    adapter(make_batch("image_bn", 4, 0))
    with pytest.raises(InputError, match=r"one shape, \(3, 16, 16\); this batch has \(3, 20, 20\)"):
        adapter(torch.rand(4, 3, 20, 20))


def test_the_shape_may_be_given_or_comes_with_the_first_batch():
    x, network = make_batch("image_bn", 8, 0), make_network("image_bn")
    whole = RoTTAConfig(every=8)
    for adapter in (RoTTA(network, whole), RoTTA(network, preset="cifar10"), RoTTA(network, sample=(3, 16, 16))):
        adapter(x)
        assert adapter.memory.shape == (64, 3, 16, 16)
        other = RoTTA(network, whole) if adapter.config.every == 8 else RoTTA(network, preset=adapter.preset)
        other.load_state_dict(adapter.state_dict())
        torch.testing.assert_close(other(x), adapter(x))


def test_it_can_be_guarded():
    guard = Guard(RoTTA(make_network("image_bn"), every=8))
    for seed in range(6):
        assert guard(make_batch("image_bn", 8, seed)).isfinite().all()
