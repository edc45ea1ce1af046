"""ETA: equations worked by hand, and ten batches against plain torch that indexes the samples it keeps."""

from __future__ import annotations

import math

import pytest
import torch

from ctta import ETA, RDumb
from ctta.methods.eta import entropy_weight, follow, unlike
from ctta.testing.networks import make_batch, make_network
from plain import PlainETA, adam, make_decisive

BATCHES = [make_batch("image_bn", 32, seed) for seed in range(10)]


def sgd(parameters):
    return torch.optim.SGD(parameters, 2.5e-4, momentum=0.9)


def test_the_weight_by_hand():
    uncertainty = torch.tensor([0.0, math.log(2), math.log(4)], requires_grad=True)
    weight = entropy_weight(uncertainty, math.log(2))
    torch.testing.assert_close(weight, torch.tensor([2.0, 1.0, 0.5]))
    assert not weight.requires_grad


def test_what_is_unlike_the_average_by_hand():
    # cos((0.6, 0.8), (1, 0)) = 0.6 and cos((0.6, 0.8), (0, 1)) = 0.8; the comparison is strict
    average, probability = torch.tensor([0.6, 0.8]), torch.eye(2)
    assert unlike(average, probability, 0.7).tolist() == [True, False]
    assert unlike(average, probability, 0.9).tolist() == [True, True]
    assert unlike(torch.zeros(2), probability, 0.01).tolist() == [True, True], "no average yet"


def test_the_average_by_hand():
    probability = torch.tensor([[1.0, 0.0], [0.5, 0.5], [float("nan"), 0.0]])
    kept = torch.tensor([True, True, False])
    first = follow(torch.zeros(2), probability, kept, 0.9)
    torch.testing.assert_close(first, torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(follow(torch.tensor([0.25, 0.75]), probability, kept, 0.9), torch.tensor([0.3, 0.7]))
    assert torch.equal(follow(first, probability, torch.zeros(3, dtype=torch.bool), 0.9), first)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("preset", "optimizer", "d"), [("cifar10", adam, 0.4), ("imagenet", sgd, 0.05)])
def test_eta_over_ten_batches(dtype, tolerance, preset, optimizer, d):
    network = make_decisive().to(dtype)
    reference = PlainETA(network, optimizer, d=d)
    adapter = ETA(network, preset=preset)
    for x in BATCHES:
        expected = reference(x.to(dtype))
        step = adapter.step(x.to(dtype))
        torch.testing.assert_close(step.logits, expected, atol=tolerance, rtol=tolerance)
        assert step.samples["selected"].sum() == reference.kept[-1]
        assert step.info["idle"] == (reference.kept[-1] == 0)
    assert len(set(reference.kept)) > 1, "the filters must be at work"
    assert 0 in reference.kept, "an empty selection is part of the comparison"
    torch.testing.assert_close(adapter.average, reference.average, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("method", [ETA, RDumb])
def test_nothing_to_keep_is_no_step(method):
    adapter = method(make_decisive(), preset="cifar10", margin=0.4, lr=0.02)
    adapter(BATCHES[0])  # the moments are under way: a step with gradient 0 would still move
    before = [value.clone() for value in (*adapter.parameters(), *adapter.buffers())]
    moments = [value.clone() for slots in adapter.optimizer.state.values() for value in slots.values()]
    adapter.config = adapter.config.replace(margin=0.0)
    step = adapter.step(BATCHES[1])
    assert (step.info["idle"], step.info["skipped"], step.info["selected"]) == (1, 0, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, (*adapter.parameters(), *adapter.buffers()), strict=True))
    now = [value for slots in adapter.optimizer.state.values() for value in slots.values()]
    assert all(torch.equal(a, b) for a, b in zip(moments, now, strict=True))


def test_batches_of_one_image_of_one_class_and_of_equal_confidence():
    network = make_decisive()
    same = BATCHES[0][:1].expand(8, -1, -1, -1)
    for x in (BATCHES[0][:1], same):
        adapter = ETA(network, preset="cifar10", margin=1.0)
        first, second = adapter.step(x), adapter.step(x)
        assert first.info["selected"] == 1
        assert second.info["selected"] == 0, "what is like the average is redundant"
        assert adapter.average.isfinite().all()
    uniform = make_network("image_bn")
    torch.nn.init.zeros_(uniform.head.weight)
    torch.nn.init.zeros_(uniform.head.bias)
    step = ETA(uniform, preset="cifar10").step(BATCHES[0])
    assert (step.info["idle"], step.info["loss"]) == (1, 0)
