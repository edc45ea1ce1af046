"""Each equation of DSS with numbers worked by hand, then the method as a whole."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import tensor

from ctta import DSS
from ctta.core.thresholds import Rule
from ctta.methods import dss
from ctta.testing import Case, contract
from ctta.testing.contract import same
from ctta.testing.networks import make_batch, make_network
from plain import with_batch_statistics


def close(found, expected):
    torch.testing.assert_close(found, tensor(expected), atol=1e-6, rtol=0)


def test_eq5_sharpen():
    # exponent 1/0.5 = 2: 0.64, 0.04 over 0.68
    close(dss.sharpen(tensor([[0.8, 0.2]]), 0.5), [[0.64 / 0.68, 0.04 / 0.68]])
    # as printed, exponent 0.5: sqrt 0.64 = 0.8, sqrt 0.36 = 0.6 over 1.4
    close(dss.sharpen(tensor([[0.64, 0.36]]), 0.5, literal=True), [[0.8 / 1.4, 0.6 / 1.4]])


def test_eq6_positive_loss():
    # Student probabilities 3/4 and 1/4 on both samples; the second is not selected.
    student = tensor([[math.log(3.0), 0.0], [math.log(3.0), 0.0]])
    label = tensor([[0.9, 0.1], [0.5, 0.5]])
    expected = -(0.9 * math.log(0.75) + 0.1 * math.log(0.25))
    close(dss.positive_loss(label, student, tensor([True, False])), expected)


def test_eq6_without_a_selected_sample_is_zero_and_has_a_gradient():
    student = torch.zeros(2, 2, requires_grad=True)
    loss = dss.positive_loss(torch.full((2, 2), 0.5), student, tensor([False, False]))
    loss.backward()
    assert loss == 0
    assert (student.grad == 0).all()


def test_eq7_negative_loss():
    # First sample: classes 1 and 2 are below alpha. Second: none is. Student: 1/2, 1/4, 1/4.
    student = tensor([[math.log(2.0), 0.0, 0.0]] * 2)
    pseudo = tensor([[0.96, 0.03, 0.01], [0.5, 0.3, 0.2]])
    close(dss.negative_loss(pseudo < 0.05, student), -(2 * math.log(0.75)) / 2)


def test_eq7_stays_finite_when_the_student_is_saturated():
    loss = dss.negative_loss(tensor([[True, False]]), tensor([[200.0, 0.0]]))
    close(loss, -math.log(1e-5))


def adapter(**fields):
    return DSS(make_network("image_bn"), **{"views": 1, "augmentation_threshold": 0.0, **fields})


def test_selection_by_hand():
    # C = 5, pi starts at 0.2; pi <- 0.9 x 0.2 + 0.1 x (0.9 + 0.6 + 0.35)/3 = 0.18 + 0.0616667 = 0.2416667.
    # delta (sum) = [1.5, 0, 0.35]/3, tau = [1, 0, 0.2333]; thresholds 0.2417, 0, 0.0564: all pass.
    pseudo = tensor([[0.9, 0.05, 0.05, 0, 0], [0.6, 0.3, 0.1, 0, 0], [0.3, 0.3, 0.35, 0.05, 0]])
    method = adapter(threshold="dynamic")
    selected, complementary = method.select(pseudo, pseudo[None])
    assert complementary[0].tolist() == [False, False, False, True, True]  # below alpha, 0.05 itself is not
    close(method.threshold, 0.18 + 0.1 * 1.85 / 3)
    assert selected.tolist() == [True, True, True]


def test_selection_with_a_high_threshold():
    # pi = 0.9 x 0.8 + 0.1 x 0.6166667 = 0.7816667; tau = [1, 0, 0.2333] -> 0.7817 for class 0, 0.1824 for class 2.
    pseudo = tensor([[0.9, 0.05, 0.05, 0, 0], [0.6, 0.3, 0.1, 0, 0], [0.3, 0.3, 0.35, 0.05, 0]])
    method = adapter()
    method.threshold.fill_(0.8)
    assert method.select(pseudo, pseudo[None])[0].tolist() == [True, False, True]


def test_fixed_threshold_knows_no_classes():
    pseudo = tensor([[0.9, 0.05, 0.05, 0, 0], [0.15, 0.19, 0.18, 0.24, 0.24], [0.19, 0.21, 0.2, 0.2, 0.2]])
    method = adapter(threshold=0.24)
    assert method.select(pseudo, pseudo[None])[0].tolist() == [True, True, False]


def test_running_class_confidence_remembers_classes_that_are_absent():
    method = adapter(delta="running", lambda_=0.5)
    method.select(tensor([[0.8, 0.2, 0, 0, 0]]), torch.empty(0))
    close(method.class_average, [0.5, 0.2, 0.2, 0.2, 0.2])  # (0.2 + 0.8)/2 for class 0, the others wait
    method.select(tensor([[0.4, 0.6, 0, 0, 0]]), torch.empty(0))
    close(method.class_average, [0.5, 0.4, 0.2, 0.2, 0.2])


def test_the_threshold_starts_at_chance_and_halves_its_way_back_at_a_domain_start():
    method = adapter()
    close(method.threshold, 0.2)
    method.threshold.fill_(0.6)
    method.begin_domain()
    close(method.threshold, 0.4)


def test_the_update_is_the_paper_s_loss_and_nothing_else():
    """One step against plain torch: same gradient, same Adam step, same moving average."""
    x = make_batch("image_bn", 8, 0)
    method = adapter(restore=0.0, ema=0.9, statistics="batch")
    student, teacher = (with_batch_statistics(make_network("image_bn")) for _ in range(2))
    y = teacher(x).softmax(1).detach()
    top = y.max(1)
    pi = 0.9 * 0.2 + 0.1 * top.values.mean()
    sums = torch.stack([top.values[top.indices == c].sum() for c in range(5)])
    high = top.values >= pi * (sums / sums.max())[top.indices]
    sharp = y ** (1 / 0.6) / (y ** (1 / 0.6)).sum(1, keepdim=True)
    p = student(x).softmax(1)
    positive = -(sharp * p.log()).sum(1)[high].mean()
    negative = -((y < 0.05) * (1 - p).log()).sum(1).mean()
    optimizer = torch.optim.Adam(student.parameters(), 1e-3)
    (positive + negative).backward()
    optimizer.step()

    step = method.step(x)
    torch.testing.assert_close(step.logits.softmax(1), y)
    torch.testing.assert_close(step.info["loss"], (positive + negative).detach())
    torch.testing.assert_close(step.info["threshold"], pi)
    assert torch.equal(step.samples["selected"], high)
    start = dict(make_network("image_bn").named_parameters())
    for name, theirs in student.named_parameters():
        if name not in ("conv1.bias", "conv2.bias"):  # BatchNorm cancels them: their gradient is rounding noise
            ours = method.student.get_parameter(name)
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
            averaged = 0.9 * start[name] + 0.1 * theirs
            torch.testing.assert_close(method.teacher.get_parameter(name), averaged, atol=1e-6, rtol=1e-5)


def test_the_student_is_restored_after_the_teacher_has_followed_it():
    method, network = adapter(restore=1.0, ema=0.0, lr=0.01), make_network("image_bn")
    method(make_batch("image_bn", 8, 0))
    assert same(list(method.student.parameters()), list(network.parameters()))
    assert not same(list(method.teacher.parameters()), list(network.parameters()))


def test_parts_of_the_loss():
    x = make_batch("image_bn", 8, 0)
    loss = {parts: adapter(parts=parts).step(x).info["loss"] for parts in ("dt", "dt+pl", "dt+pl+nl")}
    assert loss["dt"] > loss["dt+pl"]  # a sharpened label has less entropy
    assert loss["dt+pl+nl"] > loss["dt+pl"]


def test_predict_after_answers_with_the_updated_teacher():
    x = make_batch("image_bn", 8, 0)
    method = adapter(predict_after=True, ema=0.0, restore=0.0)
    logits = method(x)
    torch.testing.assert_close(logits, method.predict(x))
    assert not torch.equal(logits, adapter(ema=0.0, restore=0.0)(x))


@pytest.mark.parametrize("field", ["temperature", "lambda_", "alpha", "delta", "threshold", "literal_exponent"])
def test_every_decision_is_a_field_that_matters(field):
    other = {
        "temperature": 1.0,
        "lambda_": 0.0,
        "alpha": 0.2,
        "delta": "mean",
        "threshold": 0.9,
        "literal_exponent": True,
    }
    stream = [make_batch("image_bn", 8, seed) for seed in range(4)]
    lively = {"lr": 0.02, "ema": 0.5}
    plain, changed = adapter(**lively), adapter(**lively, **{field: other[field]})
    for method in (plain, changed):
        method.threshold.fill_(0.9)  # so that not everything passes
    assert any(not torch.equal(plain(x), changed(x)) for x in stream)


@pytest.mark.parametrize("temperature", [0.2, 0.02, 0.001])
def test_sharpening_does_not_underflow(temperature):
    pseudo = torch.full((1, 1000), 1e-3)
    pseudo[0, 7] = 2e-3
    sharp = dss.sharpen(pseudo, temperature)
    assert sharp.isfinite().all()
    torch.testing.assert_close(sharp.sum(), tensor(1.0))
    assert sharp.argmax() == 7
    assert dss.sharpen(tensor([[1.0, 0.0]]), temperature).tolist() == [[1.0, 0.0]]


def test_the_preset_goes_by_the_input_s_size_and_is_reported(caplog):
    network = make_network("image_gn")
    with caplog.at_level("INFO", "ctta"):
        for size, preset, optimizer in ((32, "cifar10+auto", torch.optim.Adam), (96, "imagenet+auto", torch.optim.SGD)):
            adapter = DSS(network, views=1)
            adapter(torch.rand(2, 3, size, size))
            assert adapter.preset == preset
            assert isinstance(adapter.optimizer, optimizer)
            assert adapter.config.views == 1
            assert f"preset {preset!r}" in caplog.text
            assert f"preset={preset!r}" in repr(adapter)


RULES = [rule for rule in get_args(Rule) if rule != "dynamic"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "check",
    [
        contract.check_reset_replays,
        contract.check_save_and_load,
        contract.check_one_sample,
        contract.check_two_synchronisations,
    ],
    ids=lambda check: check.__name__,
)
def test_contract_with_every_rule(check, rule):
    check(Case(DSS, "image_bn", {"threshold": rule}))


def test_ups_reads_the_views_and_needs_no_other_pass():
    x, passes = make_batch("image_bn", 8, 0), []
    for rule in ("dynamic", "ups"):
        method = adapter(threshold=rule, views=4, augmentation_threshold=1.0)
        passes.append(method.step(x).info["forwards"])
    assert passes[0] == passes[1]
    seen: list[torch.Tensor] = []
    with method._scope(x) as batch, torch.no_grad():
        mean, count = method.pseudo_label(batch, seen)
    assert len(seen) == count == 4
    torch.testing.assert_close(torch.stack(seen).mean(0), mean)


def test_adamatch_looks_at_the_source_if_nothing_else_does():
    x = make_batch("image_bn", 8, 0)
    method = adapter(threshold="adamatch", level=0.5, statistics="batch")
    step = method.step(x)
    confidence = with_batch_statistics(make_network("image_bn"))(x).softmax(1).amax(1).mean()
    torch.testing.assert_close(step.info["threshold"], 0.5 * confidence.detach())
    assert step.info["forwards"] == adapter(statistics="batch").step(x).info["forwards"] + 1


def test_a_number_is_the_fixed_rule_at_that_level():
    stream = [make_batch("image_bn", 8, seed) for seed in range(3)]
    named, number = adapter(threshold="fixed", level=0.3, lr=0.02), adapter(threshold=0.3, lr=0.02)
    assert all(torch.equal(named(x), number(x)) for x in stream)
