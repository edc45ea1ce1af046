"""The traits that methods declare, against counts of network passes and calls of the autograd engine."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from ctta import METHODS
from ctta.testing.networks import ImageBN

COUNTS: Counter[str] = Counter()
PARTIAL = ("roid", "cmf", "deyo", "rotta")  # their second pass is of the samples that they keep only, a part of a pass
SETTINGS = {"rotta": {"memory": 4, "every": 8}}  # so that every second batch is followed by an update


class Counted(nn.Module):
    """A CIFAR-size network that counts its images; it is sure of bright ones, so that thresholds are crossed."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.network = ImageBN()

    def forward(self, x):
        COUNTS["images"] += len(x)
        return self.network(x) * (1 + 400 * (x.mean() > 0.5))


@pytest.fixture
def backwards(monkeypatch):
    for name in ("backward", "grad"):
        real = getattr(torch.autograd, name)

        def counting(*args, real=real, **kwargs):
            COUNTS["backwards"] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(torch.autograd, name, counting)


@pytest.mark.usefixtures("backwards")
@pytest.mark.parametrize("name", METHODS)
def test_passes_are_as_declared(name):
    generator = torch.Generator().manual_seed(0)
    dark, bright = torch.rand(2, 4, 3, 32, 32, generator=generator) * 0.4 + torch.tensor([0.0, 0.6]).view(2, 1, 1, 1, 1)
    adapter = METHODS[name](Counted(), preset="cifar10", **SETTINGS.get(name, {}))
    adapter.prepare([(dark, torch.arange(4)), (bright, torch.arange(4))])
    adapter.step(dark)  # the first augmentations come with a trial pass, which is not counted
    forwards, backwards = [], []
    for x in (dark, bright, dark, bright):
        COUNTS.clear()
        step = adapter.step(x)
        forwards.append(COUNTS["images"] / len(x))
        backwards.append(COUNTS["backwards"] / (len(x) if adapter.traits.episodic else 1))
        assert step.info["forwards"] == pytest.approx(forwards[-1])
        assert step.info["backwards"] == COUNTS["backwards"]
    fewest, most = adapter.traits.forwards
    assert fewest <= min(forwards) <= max(forwards) <= most
    if name not in PARTIAL:
        assert (min(forwards), max(forwards)) == pytest.approx((fewest, most))
    assert (min(backwards), max(backwards)) == adapter.traits.backwards


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
def test_every_method_declares_its_own(kind):
    assert "traits" in vars(kind)


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
def test_what_learns_is_as_declared(kind):
    """Nothing, norm parameters, all parameters or prompts, by the first word of `learns`."""
    adapter = kind(ImageBN(), preset="cifar10")
    norm = {"bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"}
    learned = {id(parameter) for parameter in adapter.trained}
    names = {name for network in adapter.children() for name, p in network.named_parameters() if id(p) in learned}
    every = {name for name, _ in adapter.source_model.named_parameters()}
    word = kind.traits.learns.split()[0]
    expected = {"nothing": names == set(), "norm": names == norm, "all": names >= every}
    expected["input"] = names == {"specific", "agnostic"}
    assert expected.get(word, norm <= names & every < every)
