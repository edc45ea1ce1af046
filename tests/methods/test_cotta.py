"""CoTTA against plain torch, and its parts: augmentation threshold, stochastic restore, symmetric loss."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import ctta
from ctta import CoTTA
from ctta.base.randomness import Randomness
from ctta.core.losses import consistency
from ctta.core.teacher import stochastic_restore
from ctta.testing.contract import Fragile, Fuse, same
from ctta.testing.networks import make_batch, make_network, make_stream
from plain import with_batch_statistics


def test_five_batches_against_plain_torch():
    """Without augmentations and restore, the student's step and the teacher's average are plain arithmetic.

    At the start student and teacher agree: the gradient is rounding noise and Adam makes it large, so the memory layout
    is the plain one too.
    """
    network = make_network("image_bn").double()
    student, teacher = with_batch_statistics(network), with_batch_statistics(network)
    optimizer = torch.optim.Adam(student.parameters(), 1e-3)
    adapter = CoTTA(
        network,
        preset="paper",
        augmentation_threshold=0.0,
        restore=0.0,
        ema=0.9,
        execution=ctta.Execution(channels_last=False),
    )
    for x in [make_batch("image_bn", 8, seed).double() for seed in range(5)]:
        target = teacher(x).detach()
        loss = -(target.softmax(1) * student(x).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.copy_(0.9 * old + 0.1 * new)
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, target, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-5, rtol=1e-5)


def test_a_skipped_step_does_not_move_the_teacher():
    fuse = Fuse()
    adapter = CoTTA(Fragile(make_network("image_bn"), fuse), augmentation_threshold=0.0, restore=0.0, ema=0.5)
    stream = make_stream("image_bn")
    adapter(stream[0])
    before = [parameter.clone() for parameter in adapter.teacher.parameters()]
    fuse.arm("gradient")
    assert adapter.step(stream[1]).info["skipped"] == 1
    assert same(before, list(adapter.teacher.parameters()))
    fuse.arm("")
    adapter(stream[2])
    assert not same(before, list(adapter.teacher.parameters()))


def test_the_loss_goes_one_way_or_both():
    # Teacher (3/4, 1/4), student (1/5, 4/5).
    teacher, student = torch.tensor([[3.0, 1.0]]).log(), torch.tensor([[1.0, 4.0]]).log()
    forward = -(3 / 4 * math.log(1 / 5) + 1 / 4 * math.log(4 / 5))
    backward = -(1 / 5 * math.log(3 / 4) + 4 / 5 * math.log(1 / 4))
    assert consistency(teacher, student, symmetric=False).item() == pytest.approx(forward)
    assert consistency(teacher, student, symmetric=True).item() == pytest.approx((forward + backward) / 2)


def test_the_student_is_restored_after_the_teacher_has_followed_it():
    network, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    adapter = CoTTA(network, augmentation_threshold=1.0, views=2, restore=1.0, ema=0.0, lr=0.01)
    adapter(x)
    assert same(list(adapter.student.parameters()), list(network.parameters()))
    assert not same(list(adapter.teacher.parameters()), list(network.parameters()))


class Confident(nn.Module):
    """Predicts class 0 with the image's brightness as confidence."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(1, 2)

    def forward(self, x):
        p = x.mean((1, 2, 3)).clamp(0.01, 0.99)
        return torch.stack([p.log(), (1 - p).log()], 1) + 0 * self.head(self.norm(x).mean((1, 2, 3))[:, None])


@pytest.mark.parametrize(("level", "views"), [(0.9, 0), (0.7, 4)])
def test_augmentations_are_averaged_only_if_the_source_is_unsure(level, views):
    adapter = CoTTA(Confident(), preset="paper", augmentation_threshold=0.8, views=4, restore=0.0, lr=0.0)
    step = adapter.step(torch.full((2, 3, 4, 4), level))
    assert step.info["views"] == views
    assert step.info["forwards"] == 1 + 1 + max(views, 1)  # student, source, teacher


@pytest.mark.parametrize(("gate", "forwards"), [(0.0, 2), (1.0, 5)])
def test_the_source_is_not_evaluated_if_its_prediction_cannot_matter(gate, forwards):
    adapter = CoTTA(make_network("image_bn"), preset="paper", augmentation_threshold=gate, views=4)
    assert adapter.step(make_batch("image_bn", 4, 0)).info["forwards"] == forwards


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_restore_rate(rate):
    """Each scalar goes back with probability p: binomial, within five standard deviations, in every tensor."""
    weights, source = [torch.ones(300, 400), torch.ones(50_000)], [torch.zeros(300, 400), torch.zeros(50_000)]
    stochastic_restore(zip(weights, source, strict=True), rate, Randomness(0, 0, torch.device("cpu")))
    for tensor in weights:
        n = tensor.numel()
        restored = n - tensor.sum().item()
        assert abs(restored - n * rate) < 5 * (n * rate * (1 - rate)) ** 0.5


def test_restore_works_on_any_memory_format_and_at_the_ends():
    weights = torch.ones(8, 4, 3, 3).to(memory_format=torch.channels_last)
    source = torch.arange(288.0).view(8, 4, 3, 3)
    stochastic_restore([(weights, source)], 0.5, Randomness(0, 0, torch.device("cpu")))
    assert ((weights == source) | (weights == 1)).all()
    assert 100 < (weights == source).sum() < 190  # 144 expected, five standard deviations
    stochastic_restore([(weights, source)], 1.0, Randomness(0, 0, torch.device("cpu")))
    assert torch.equal(weights, source)


def test_calibrate_gate_is_the_quantile_rule():
    # Confidence 0.51 ... 0.90 in 40 steps; its 5 % quantile is 0.51 + 0.05 x 0.39 = 0.5295.
    levels = torch.linspace(0.51, 0.90, 40)
    batches = [level.view(1, 1, 1, 1).expand(1, 3, 2, 2) for level in levels]
    model = Confident()
    assert ctta.calibrate_gate(model, batches) == pytest.approx(0.5295 - 0.05, abs=1e-4)
    assert ctta.calibrate_gate(model, [(x, torch.zeros(1)) for x in batches]) == pytest.approx(0.4795, abs=1e-4)
    assert model.training
    with pytest.raises(ctta.InputError, match="at least one batch"):
        ctta.calibrate_gate(model, [])
