"""ETA, EATA and RDumb: equations by hand, guards, and ten batches against plain torch that indexes what it keeps."""

from __future__ import annotations

import math

import pytest
import torch

from ctta import EATA, ETA, InputError, RDumb, StateError
from ctta.methods.eata import forgetting
from ctta.methods.eta import entropy_weight, follow, unlike
from networks import CLASSES, make_batch, make_decisive, make_network
from plain import with_batch_statistics

BATCHES = [make_batch("image_bn", 32, seed) for seed in range(10)]
SOURCE = [make_batch("image_bn", n, 100 + n) for n in (12, 12, 7)]
BOTH = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def labelled(batches):
    return [(x, torch.zeros(len(x), dtype=torch.int64)) for x in batches]


def test_the_weight_by_hand():
    uncertainty = torch.tensor([0.0, math.log(2), math.log(4)], requires_grad=True)
    weight = entropy_weight(uncertainty, math.log(2))
    torch.testing.assert_close(weight, torch.tensor([2.0, 1.0, 0.5]))
    assert not weight.requires_grad


def test_what_is_unlike_the_average_by_hand():
    # cos((.6, .8), (1, 0)) = .6 and cos((.6, .8), (0, 1)) = .8; the comparison is strict
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


def test_forgetting_by_hand():
    parameters, source = (
        [torch.tensor([1.0, 2.0]), torch.tensor([3.0])],
        [torch.tensor([0.0, 2.0]), torch.tensor([1.0])],
    )
    # 3 (1 - 0)^2 + 5 (2 - 2)^2 + .5 (3 - 1)^2
    assert forgetting(parameters, source, torch.tensor([3.0, 5.0, 0.5])).item() == 5.0


class Plain:
    """The method as its authors tell it: filter, filter again, average, weigh, step."""

    def __init__(self, network, optimizer, *, d, fisher=None, anchor=0.0, classes=CLASSES):
        self.network = with_batch_statistics(network)
        self.learned = [p for layer in (self.network.bn1, self.network.bn2) for p in (layer.weight, layer.bias)]
        self.start = [p.detach().clone() for p in self.learned]
        self.optimizer = optimizer(self.learned)
        self.limit, self.d, self.fisher, self.anchor = 0.4 * math.log(classes), d, fisher, anchor
        self.average, self.kept = None, []

    def __call__(self, x):
        logits = self.network(x)
        p = logits.softmax(1)
        h = -(p * p.log()).sum(1)
        chosen = [i for i in range(len(x)) if h[i] < self.limit]
        if self.average is not None:
            lengths = [(self.average.norm() * p[i].norm()).item() for i in chosen]
            cosines = [abs((self.average @ p[i]).item()) / n for i, n in zip(chosen, lengths, strict=True)]
            chosen = [i for i, cosine in zip(chosen, cosines, strict=True) if cosine < self.d]
        self.kept.append(len(chosen))
        if chosen:
            mean = p[chosen].detach().mean(0)
            self.average = mean if self.average is None else 0.9 * self.average + 0.1 * mean
            loss = (h[chosen] * torch.exp(self.limit - h[chosen].detach())).mean()
            for number, parameter in enumerate(self.learned if self.fisher else []):
                loss = loss + self.anchor * (self.fisher[number] * (parameter - self.start[number]) ** 2).sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return logits.detach()


def plain_fisher(network, batches):
    network = with_batch_statistics(network)
    learned = [p for layer in (network.bn1, network.bn2) for p in (layer.weight, layer.bias)]
    squares = [torch.zeros_like(p) for p in learned]
    for x in batches:
        logits = network(x)
        loss = torch.nn.functional.cross_entropy(logits, logits.argmax(1))
        for square, gradient in zip(squares, torch.autograd.grad(loss, learned), strict=True):
            square += gradient**2 / len(batches)
    return squares


def adam(parameters):
    return torch.optim.Adam(parameters, 1e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, 2.5e-4, momentum=0.9)


@pytest.mark.parametrize(("dtype", "tolerance"), BOTH)
@pytest.mark.parametrize(("preset", "optimizer", "d"), [("cifar10", adam, 0.4), ("imagenet", sgd, 0.05)])
def test_eta_over_ten_batches(dtype, tolerance, preset, optimizer, d):
    network = make_decisive().to(dtype)
    reference = Plain(network, optimizer, d=d)
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


@pytest.mark.parametrize(("dtype", "tolerance"), BOTH)
def test_eata_over_ten_batches(dtype, tolerance):
    network = make_decisive().to(dtype)
    source = [x.to(dtype) for x in SOURCE]
    used = [source[0], source[1][:8]]  # the first twenty images
    reference = Plain(network, adam, d=0.9, fisher=plain_fisher(network, used), anchor=2000.0)
    adapter = EATA(network, preset="cifar10", similarity=0.9, anchor=2000.0, fisher_images=20)
    adapter.prepare(labelled(source))
    free = Plain(network, adam, d=0.9)
    for x in BATCHES:
        expected = reference(x.to(dtype))
        torch.testing.assert_close(adapter(x.to(dtype)), expected, atol=tolerance, rtol=tolerance)
        free(x.to(dtype))
    assert not torch.allclose(free.learned[0], reference.learned[0], atol=1e-4), "the anchor must be at work"


def test_fisher_needs_usable_source_images():
    adapter = EATA(make_decisive())
    with pytest.raises(StateError, match="needs source data"):
        adapter(BATCHES[0])
    with pytest.raises(InputError, match="there were none"):
        adapter.prepare([])
    with pytest.raises(InputError, match="NaN or infinity"):
        adapter.prepare(labelled([SOURCE[0] * float("nan")]))
    with pytest.raises(StateError, match="needs source data"):
        adapter(BATCHES[0])
    adapter.prepare(labelled(SOURCE))
    assert all(parameter.grad is None for parameter in adapter.parameters())
    fisher = adapter.source_fisher.clone()
    assert (fisher > 0).any()
    adapter(BATCHES[0])
    adapter.reset()
    assert torch.equal(adapter.source_fisher, fisher), "what the source gave outlives a reset"


def test_rdumb_starts_again():
    network = make_decisive()
    adapter, fresh = RDumb(network, preset="cifar10", reset_every=3, lr=0.02), ETA(network, preset="cifar10", lr=0.02)
    for number, x in enumerate(BATCHES):
        if number % 3 == 0:
            fresh.reset()
        assert torch.equal(adapter(x), fresh(x))
    assert torch.equal(adapter.average, fresh.average)
    assert RDumb(network, preset="cifar100").config.similarity == 0.4
    assert RDumb(network).config.reset_every == 1000


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
