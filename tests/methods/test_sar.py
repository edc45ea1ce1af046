"""SAR: equations by hand, the recovery, what is frozen, and ten batches against plain torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ctta import SAR, ModelError, Normalized
from ctta.methods.sar import ascent, moving_average
from ctta.models import MODELS
from ctta.testing.networks import CLASSES, make_batch, make_network
from plain import make_decisive, norm_weights, with_batch_statistics

BATCHES = [make_batch("image_bn", 16, seed) for seed in range(10)]


def test_the_ascent_by_hand():
    # |(3, 0, 4)| = 5 over both tensors; rho = 0.05 makes the step (0.03, 0, 0.04)
    first, second = ascent([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 0.05)
    torch.testing.assert_close(first, torch.tensor([0.03, 0.0]))
    torch.testing.assert_close(second, torch.tensor([0.04]))
    assert ascent([torch.zeros(2)], 0.05)[0].tolist() == [0.0, 0.0]


def test_the_average_by_hand():
    assert moving_average(torch.tensor(-1.0), torch.tensor(0.5), 0.9) == 0.5
    torch.testing.assert_close(moving_average(torch.tensor(0.5), torch.tensor(1.0), 0.9), torch.tensor(0.55))


def plain_sar(network, batches, *, limit, recover, forget, rate):
    """SAR as its authors describe it, with momentum by hand."""
    start = with_batch_statistics(network)
    model = with_batch_statistics(network)
    learned = norm_weights(model)
    original = norm_weights(start)
    momentum, average = [torch.zeros_like(p) for p in learned], None

    def entropy(x):
        logits = model(x)
        return logits.detach(), -(logits.softmax(1) * logits.log_softmax(1)).sum(1)

    for x in batches:
        logits, h = entropy(x)
        kept = [i for i in range(len(x)) if h[i] < limit]
        selected, recovered = [], False
        if kept:
            gradients = torch.autograd.grad(h[kept].mean(), learned)
            norm = math.sqrt(sum((g**2).sum().item() for g in gradients))
            with torch.no_grad():
                for p, g in zip(learned, gradients, strict=True):
                    p += 0.05 * g / (norm + 1e-12)
            _, h = entropy(x)
            selected = [i for i in kept if h[i] < limit]
            loss = h[selected].mean()
            steps = torch.autograd.grad(loss, learned)
            average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
            with torch.no_grad():
                for p, g, m, s in zip(learned, gradients, momentum, steps, strict=True):
                    p -= 0.05 * g / (norm + 1e-12)
                    m.mul_(0.9).add_(s)
                    p -= rate * m
            recovered = average < recover
            if recovered:
                with torch.no_grad():
                    for p, o in zip(learned, original, strict=True):
                        p.copy_(o)
                average = None if forget else average
        yield logits, len(selected), recovered


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("recover", "forget", "expected"), [(0.2, False, 0), (0.34, False, 7), (0.34, True, 1)])
def test_ten_batches_against_plain_torch(dtype, tolerance, recover, forget, expected):
    network = make_decisive().to(dtype)
    adapter = SAR(network, preset="cifar10", recover=recover, forget=forget)
    batches = [x.to(dtype) for x in BATCHES]
    recoveries = 0
    limit = 0.4 * math.log(CLASSES)
    reference = plain_sar(network, batches, limit=limit, recover=recover, forget=forget, rate=1e-3)
    for x, (logits, selected, recovered) in zip(batches, reference, strict=True):
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, logits, atol=tolerance, rtol=tolerance)
        assert step.samples["selected"].sum() == selected
        assert 0 < selected < len(x)
        assert step.info["recovered"] == recovered
        recoveries += recovered
    assert recoveries == expected


def test_recovery_takes_the_weights_back_and_nothing_else():
    network = make_decisive()
    adapter = SAR(network, preset="cifar10", recover=100.0)
    fresh = SAR(network, preset="cifar10", recover=100.0)
    step = adapter.step(BATCHES[0])
    assert step.info["recovered"] == 1
    assert adapter.average == step.info["loss"]
    assert all(torch.equal(a, b) for a, b in zip(adapter.parameters(), fresh.parameters(), strict=True))
    assert any((value != 0).any() for slots in adapter.optimizer.state.values() for value in slots.values())
    never = SAR(network, preset="cifar10", recover=0.0)
    assert all(never.step(x).info["recovered"] == 0 for x in BATCHES)


def test_a_batch_without_reliable_samples_keeps_the_average():
    adapter = SAR(make_decisive(), preset="cifar10")
    adapter(BATCHES[0])
    average = adapter.average.clone()
    adapter.config = adapter.config.replace(margin=0.0)
    step = adapter.step(BATCHES[1])
    assert torch.equal(adapter.average, average)
    assert (step.info["selected"], step.info["loss"], step.info["skipped"]) == (0, 0, 0)
    assert all(parameter.isfinite().all() for parameter in adapter.parameters())


def test_weights_are_put_back_when_the_second_pass_fails():
    class FailsTwice(nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.network = make_decisive()

        def forward(self, x):
            type(self).calls += 1
            if self.calls == 2:
                raise RuntimeError("out of luck")
            return self.network(x)

    adapter = SAR(FailsTwice(), classes=CLASSES)
    before = [parameter.clone() for parameter in adapter.parameters()]
    with pytest.raises(ModelError, match="out of luck"):
        adapter(BATCHES[0])
    assert all(torch.equal(a, b) for a, b in zip(before, adapter.parameters(), strict=True))


def learned_names(adapter):
    trained = {id(parameter) for parameter in adapter.trained}
    return {name for name, parameter in adapter.model.named_parameters() if id(parameter) in trained}


def test_the_last_stage_is_frozen_by_its_path(caplog):
    model = Normalized(MODELS["resnet18"].build(), (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    with caplog.at_level("INFO", "ctta"):
        adapter = SAR(model, preset="imagenet")
    assert "do not learn: layer4" in caplog.text
    everything = learned_names(SAR(model, preset="cifar10", frozen=()))
    frozen = everything - learned_names(adapter)
    assert frozen
    assert all(name.startswith("model.layer4.") for name in frozen)
    assert frozen == {name for name in everything if ".layer4." in name}
    assert not any(parameter.requires_grad for name, parameter in adapter.model.named_parameters() if name in frozen)


@pytest.mark.parametrize("wrap", [lambda model: nn.Sequential(nn.Identity(), model), lambda model: model])
@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_the_last_stage_is_frozen_inside_a_wrapper_too(wrap, preset):
    names = learned_names(SAR(wrap(MODELS["resnet18"].build()), preset=preset))
    assert any("layer3" in name for name in names)
    assert not any("layer4" in name for name in names)


def test_small_networks_may_lack_the_stages_of_large_ones(caplog):
    with caplog.at_level("WARNING", "ctta"):
        SAR(make_network("image_bn"), preset="cifar10")
        assert "none of the modules" not in caplog.text
        SAR(make_network("image_bn"), preset="imagenet")
        assert "none of the modules" in caplog.text


def test_the_list_follows_the_preset_that_the_input_asks_for():
    adapter = SAR(MODELS["resnet18"].build(), classes=1000)
    rate = adapter.config.lr
    adapter(torch.rand(2, 3, 80, 80))
    assert adapter.preset == "imagenet+auto"
    assert adapter.config.lr != rate
    assert not any("layer4" in name for name in learned_names(adapter))
    assert all(parameter.grad is None for parameter in adapter.parameters())
    adapter.reset()
    assert adapter.config.lr == rate


def test_names_that_the_model_does_not_have_are_reported(caplog):
    with caplog.at_level("WARNING", "ctta"):
        SAR(make_network("image_bn"), preset="cifar10", frozen=("layer9",))
    assert "none of the modules layer9" in caplog.text
    assert "conv1, bn1, conv2, bn2" in caplog.text
    with pytest.raises(ModelError, match="Freeze less"):
        SAR(make_network("image_bn"), frozen=("bn1", "bn2"))
