"""BN Adapt, TENT, CoTTA and Test Aug against straightforward references in plain torch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import ctta
from contract import Case, Fragile, answers, arm, same
from ctta import TENT, BNAdapt, CoTTA, Source, TestAug
from ctta.base.randomness import Randomness
from ctta.core.teacher import stochastic_restore
from networks import make_batch, make_network, make_stream
from plain import with_batch_statistics


@pytest.mark.parametrize("kind", ["image_bn", "pointnet_bn"])
def test_bn_adapt_is_batch_statistics(kind):
    network = make_network(kind)
    reference, adapter = with_batch_statistics(network), BNAdapt(network)
    for x in make_stream(kind):
        with torch.no_grad():
            assert torch.equal(adapter(x), reference(x))


@pytest.mark.parametrize("kind", ["image_bn", "pointnet_bn"])
def test_bn_adapt_mixes_by_alpha(kind):
    network = make_network(kind)
    adapter = BNAdapt(network, batch_weight=0.3)
    for x in make_stream(kind):
        reference = copy.deepcopy(network).eval()
        for layer in (reference.bn1, reference.bn2):
            seen = {}
            layer.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(x=args[0]))
            with torch.no_grad():
                reference(x)
            dims = [d for d in range(seen["x"].dim()) if d != 1]
            layer.running_mean.mul_(0.7).add_(seen["x"].mean(dims), alpha=0.3)
            layer.running_var.mul_(0.7).add_(seen["x"].var(dims, correction=0), alpha=0.3)
        with torch.no_grad():
            torch.testing.assert_close(adapter(x), reference(x), atol=1e-5, rtol=1e-5)


def test_alpha_zero_is_the_source_and_alpha_one_the_batch():
    network, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    torch.testing.assert_close(BNAdapt(network, batch_weight=0.0)(x), Source(network)(x), atol=1e-5, rtol=1e-5)
    assert torch.equal(BNAdapt(network, batch_weight=1.0)(x), BNAdapt(network, statistics="batch")(x))


@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_tent_against_plain_torch(preset):
    network = make_network("image_bn")
    reference = with_batch_statistics(network)
    learned = [p for layer in (reference.bn1, reference.bn2) for p in (layer.weight, layer.bias)]
    optimizer = (
        torch.optim.Adam(learned, 1e-3) if preset == "cifar10" else torch.optim.SGD(learned, 2.5e-4, 0.9, nesterov=True)
    )
    adapter = TENT(network, preset=preset)
    for x in [make_batch("image_bn", 8, seed) for seed in range(10)]:
        logits = reference(x)
        p = logits.softmax(1)
        optimizer.zero_grad()
        (-(p * p.log()).sum(1).mean()).backward()
        optimizer.step()
        torch.testing.assert_close(adapter(x), logits.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(adapter.model.bn2.weight, reference.bn2.weight, atol=1e-6, rtol=1e-5)
    assert torch.equal(adapter.model.conv1.weight, network.conv1.weight)


def test_test_aug_is_the_mean_over_views():
    network, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    adapter, reference = TestAug(network, views=3, seed=5), with_batch_statistics(network)
    random = Randomness(5, 0, x.device)
    views = [ctta.views.ImageViews("batch")(x, random) for _ in range(3)]
    with torch.no_grad():
        torch.testing.assert_close(adapter(x), sum(reference(view) for view in views) / 3)


def test_cotta_against_plain_torch():
    """Gate closed and no restore: the student's step and the teacher's average are plain arithmetic.

    At the start student and teacher agree: the gradient is rounding noise and Adam makes it large, so the layout is the
    plain one too.
    """
    network = make_network("image_bn").double()
    student, teacher = with_batch_statistics(network), with_batch_statistics(network)
    optimizer = torch.optim.Adam(student.parameters(), 1e-3)
    adapter = CoTTA(
        network, augmentation_threshold=0.0, restore=0.0, ema=0.9, execution=ctta.Execution(channels_last=False)
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
    adapter = CoTTA(Fragile(make_network("image_bn")), augmentation_threshold=0.0, restore=0.0, ema=0.5)
    stream = make_stream("image_bn")
    adapter(stream[0])
    before = [parameter.clone() for parameter in adapter.teacher.parameters()]
    arm(adapter, True)
    assert adapter.step(stream[1]).info["skipped"] == 1
    assert same(before, list(adapter.teacher.parameters()))
    arm(adapter, False)
    adapter(stream[2])
    assert not same(before, list(adapter.teacher.parameters()))


def test_symmetric_consistency():
    teacher, student = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    t, s = teacher.softmax(1), student.softmax(1)
    expected = -0.5 * (t * s.log()).sum(1) - 0.5 * (s * t.log()).sum(1)
    torch.testing.assert_close(ctta.core.losses.consistency(teacher, student, symmetric=True), expected)


class Confident(nn.Module):
    """Says class 0 with the confidence that the image's brightness asks for."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(1, 2)

    def forward(self, x):
        p = x.mean((1, 2, 3)).clamp(0.01, 0.99)
        return torch.stack([p.log(), (1 - p).log()], 1) + 0 * self.head(self.norm(x).mean((1, 2, 3))[:, None])


@pytest.mark.parametrize(("level", "views"), [(0.9, 0), (0.7, 4)])
def test_the_gate_asks_for_views_only_where_the_source_is_unsure(level, views):
    adapter = CoTTA(Confident(), augmentation_threshold=0.8, views=4, restore=0.0, lr=0.0)
    step = adapter.step(torch.full((2, 3, 4, 4), level))
    assert step.info["views"] == views
    assert step.info["forwards"] == 1 + 1 + max(views, 1)  # student, source, teacher


@pytest.mark.parametrize(("gate", "forwards"), [(0.0, 2), (1.0, 5)])
def test_the_source_is_not_asked_where_its_answer_cannot_matter(gate, forwards):
    adapter = CoTTA(make_network("image_bn"), augmentation_threshold=gate, views=4)
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
    assert (weights == source).sum() > 50
    stochastic_restore([(weights, source)], 1.0, Randomness(0, 0, torch.device("cpu")))
    assert torch.equal(weights, source)


def test_calibrate_gate_is_the_quantile_rule():
    # Confidence .51 ... .90 in 40 steps; its 5 % quantile is .51 + .05 x .39 = .5295.
    levels = torch.linspace(0.51, 0.90, 40)
    batches = [level.view(1, 1, 1, 1).expand(1, 3, 2, 2) for level in levels]
    model = Confident()
    assert ctta.calibrate_gate(model, batches) == pytest.approx(0.5295 - 0.05, abs=1e-4)
    assert ctta.calibrate_gate(model, [(x, torch.zeros(1)) for x in batches]) == pytest.approx(0.4795, abs=1e-4)
    assert model.training
    with pytest.raises(ctta.InputError, match="at least one batch"):
        ctta.calibrate_gate(model, [])


def test_settings_go_by_input_size_and_are_reported(caplog):
    network = make_network("image_gn")
    with caplog.at_level("INFO", "ctta"):
        for size, preset, optimizer in ((32, "cifar10", torch.optim.Adam), (96, "imagenet", torch.optim.SGD)):
            adapter = ctta.DSS(network, views=1)
            adapter(torch.rand(2, 3, size, size))
            assert adapter.preset == preset
            assert isinstance(adapter.optimizer, optimizer)
            assert adapter.config.views == 1
            assert f"preset {preset!r}" in caplog.text
            assert f"preset={preset!r}" in repr(adapter)


@pytest.mark.parametrize("kind", ctta.METHODS.values(), ids=ctta.METHODS)
def test_a_method_declares_what_it_needs_and_costs(kind):
    assert "traits" in vars(kind)


@pytest.mark.parametrize("kind", ctta.METHODS.values(), ids=ctta.METHODS)
def test_every_method_works_under_autocast_and_where_algorithms_must_be_deterministic(kind):
    case = Case(kind, "image_bn")
    with torch.autocast("cpu", torch.bfloat16):
        adapter = case.adapter()
        assert all(adapter(x).isfinite().all() for x in case.stream(3))
    expected, adapter, stream = answers(case.adapter(), case.stream(3)), case.adapter(), case.stream(3)
    torch.use_deterministic_algorithms(True)
    torch.set_default_device("meta")
    try:
        assert same(answers(adapter, stream), expected)
    finally:
        torch.set_default_device("cpu")
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
