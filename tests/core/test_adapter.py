"""The promises of Adapter that the contract does not cover: errors, wrappers, devices and precision, threads."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

import ctta
from ctta import DSS, TENT, InputError, ModelError, Source, StateError
from ctta.testing.contract import flat_state, same
from ctta.testing.networks import CLASSES, ImageBN, make_batch, make_network

X = make_batch("image_bn", 4, 0)


def test_create_by_name():
    adapter = ctta.create("dss", make_network("image_bn"), lambda_=0.5, seed=3)
    assert isinstance(adapter, DSS)
    assert adapter.config.lambda_ == 0.5
    assert adapter.seed == 3


@pytest.mark.parametrize("method", ["tent", "bn_adapt"])
def test_a_model_without_norm_layers(method):
    with pytest.raises(ModelError, match="has none"):
        ctta.create(method, nn.Sequential(nn.Flatten(), nn.Linear(768, 5)))


@pytest.mark.parametrize("method", ["tent", "dss"])
def test_what_follows_a_step_is_part_of_its_batch(method):
    adapter = ctta.create(method, make_network("image_bn"))
    adapter.step(X)
    before, wanted = flat_state(adapter.state_dict()), adapter.predict(X)
    with pytest.raises(ZeroDivisionError):
        adapter.step(X, then=lambda step: 1 / 0)
    assert same(before, flat_state(adapter.state_dict()))
    assert torch.equal(adapter.predict(X), wanted)
    seen = []
    step = adapter.step(X, then=lambda step: seen.append((step, adapter.batches)) or replace(step, logits=-step.logits))
    ((first, batches),) = seen
    assert batches == adapter.batches == 2
    assert torch.equal(step.logits, -first.logits)


class Answers(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(3, CLASSES)
        self.answer = answer

    def forward(self, x):
        return self.answer(self.head(self.norm(x).mean((2, 3))))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda y: y[0], r"logits of shape \(4, classes\)"),
        (lambda y: (y, y), "gave tuple"),
        (lambda y: y[:, :, None], r"gave \(4, 5, 1\)"),
        (lambda y: y[:, :3], r"Pass classes=3"),
    ],
)
@pytest.mark.parametrize("method", ["source", "tent", "dss"])
def test_output_that_is_not_logits(method, answer, words):
    adapter = ctta.create(method, Answers(answer))
    weights = [p.clone() for p in adapter.parameters()]
    with pytest.raises(ModelError, match=words):
        adapter(X)
    assert all(torch.equal(a, b) for a, b in zip(weights, adapter.parameters(), strict=True))
    assert adapter.batches == 0


def test_classes_can_be_given():
    adapter = ctta.create("source", Answers(lambda y: y[:, :3]), classes=3)
    assert adapter(X).shape == (4, 3)
    with pytest.raises(ModelError, match="Give it: classes=10"):
        Source(nn.Flatten())


def test_one_logit_is_refused_and_two_made_of_it_say_the_same():
    one, two = (nn.Sequential(nn.Flatten(), nn.Linear(768, outputs)) for outputs in (1, 2))
    for given in ({}, {"classes": 1}):
        with pytest.raises(ModelError, match=r"one logit per sample.*weight torch\.cat\(\[-w, w\]\) / 2.*classes=10"):
            Source(one, **given)
    two.load_state_dict({name: torch.cat([-value, value]) / 2 for name, value in one.state_dict().items()})
    torch.testing.assert_close(Source(two)(X).softmax(1)[:, 1], one(X).sigmoid()[:, 0])


class OneByOne(nn.Module):
    """Feature maps shrink to 1x1 before the last norm layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.head(self.norm(x.mean((2, 3), keepdim=True)).flatten(1))


@pytest.mark.parametrize("method", ["bn_adapt", "tent", "cotta", "dss", "test_aug"])
def test_one_image_of_one_by_one_maps(method):
    with pytest.raises(InputError, match='statistics="running"'):
        ctta.create(method, OneByOne(), preset="paper")(X[:1])
    assert ctta.create(method, OneByOne())(X[:1]).shape == (1, CLASSES)
    assert ctta.create(method, OneByOne(), statistics="running")(X[:1]).shape == (1, CLASSES)


def test_one_adapter_serves_one_thread():
    started, go_on = threading.Event(), threading.Event()

    class Slow(ImageBN):
        def forward(self, x):
            started.set()
            go_on.wait(10)
            return super().forward(x)

    class Copyable(Slow):
        def __deepcopy__(self, memo):
            twin = Copyable()
            twin.load_state_dict(self.state_dict())
            return twin

    adapter = Source(Copyable())
    worker = threading.Thread(target=adapter, args=(X,))
    worker.start()
    started.wait(10)
    with pytest.raises(StateError, match="one thread"):
        adapter(X)
    go_on.set()
    worker.join()
    assert adapter(X).shape == (4, CLASSES)


def test_own_views():
    calls = []

    class Shifted:
        def __call__(self, x, random):
            calls.append(random)
            return x.roll(1, -1)

    adapter = DSS(nn.Sequential(nn.Flatten(), nn.Linear(14, 5)), views=Shifted(), augmentation_threshold=1.0)
    assert adapter(torch.randn(4, 2, 7)).shape == (4, 5)  # neither images nor clouds: any range goes
    assert len(calls) == 32


def test_models_that_draw_from_the_global_generator_are_reproducible():
    class Noisy(ImageBN):
        def forward(self, x):
            return super().forward(x + 0.1 * torch.rand_like(x))

    network = Noisy()
    first, second = TENT(network), TENT(network)
    assert torch.equal(first(X), second(X))
    torch.rand(3)
    before = torch.get_rng_state()
    assert torch.equal(first(X), second(X))
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_that_changes_its_input_in_place():
    class Normalises(ImageBN):
        def forward(self, x):
            return super().forward(x.sub_(0.5).div_(0.25))

    x = X.clone()
    adapter = ctta.CoTTA(Normalises(), views=2, augmentation_threshold=1.0)
    assert adapter(x).isfinite().all()
    assert torch.equal(x, X)


def test_version_is_in_the_changelog():
    from pathlib import Path

    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert f"## {ctta.__version__}" in changelog


def test_deterministic_algorithms_and_a_default_device_work():
    expected = DSS(make_network("image_bn"), views=1, augmentation_threshold=1.0, restore=0.5)(X)
    torch.use_deterministic_algorithms(True)
    torch.set_default_device("meta")
    try:
        with torch.device("cpu"):
            network = make_network("image_bn")
        adapter = DSS(network, views=1, augmentation_threshold=1.0, restore=0.5)
        assert torch.equal(adapter(X), expected)
    finally:
        torch.set_default_device("cpu")
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kind", ["batch", "mixed", "running", "robust", "instance"])
def test_autocast_works_with_all_statistics(kind):
    adapter = TENT(make_network("image_bn"), statistics=kind)
    with torch.autocast("cpu", torch.bfloat16):
        assert adapter(X).isfinite().all()


def test_a_gate_that_never_opens_is_reported(caplog):
    with caplog.at_level("WARNING", "ctta"):
        DSS(make_network("image_gn"), views=1)(torch.rand(2, 3, 80, 80))
    assert "never averaged" in caplog.text
    caplog.clear()
    with caplog.at_level("WARNING", "ctta"):
        ctta.BNAdapt(make_network("vit_ln"))(X)
    assert "no BatchNorm layer" in caplog.text


def test_batches_that_are_too_small_for_batch_statistics_are_told_once(caplog):
    adapter = ctta.TENT(make_network("image_bn"), preset="paper")
    for _ in range(3):
        adapter(X[:4])
    assert caplog.text.count("batches of 4 are too small for batch statistics") == 1
    caplog.clear()
    for preset, network, n in (("paper", "image_bn", 16), ("auto", "image_bn", 4), ("paper", "image_gn", 4)):
        ctta.TENT(make_network(network), preset=preset)(make_batch(network, n, 0))
    assert "too small" not in caplog.text


@pytest.mark.parametrize("method", sorted(ctta.METHODS))
def test_a_model_that_ends_in_a_softmax_is_told_once(caplog, method):
    """Some methods answer with something else than what the model gives."""
    network = make_network("image_bn")
    for model, told in ((network, 0), (nn.Sequential(network, nn.Softmax(1)), 1)):
        caplog.clear()
        adapter = ctta.create(method, model)
        adapter.prepare([(X, torch.arange(4))])
        for _ in range(2):
            adapter(X)
        adapter.reset()
        adapter(X)
        assert caplog.text.count("gives probabilities instead of logits") == told


def test_only_the_first_batch_says_whether_a_model_ends_in_a_softmax(caplog):
    """A sample's logits may sum up to 1 by chance, in a long stream some will."""
    adapter = Source(Answers(lambda y: y.softmax(1) + (0 if adapter.batches else 1)))
    for _ in range(2):
        adapter(X)
    assert "gives probabilities" not in caplog.text


def test_one_class_for_a_whole_batch_is_told_once(caplog):
    network = make_network("image_bn")
    with torch.no_grad():
        network.head.bias[2] = 99
    for preset in ("paper", "auto"):
        adapter = ctta.TENT(network, preset=preset)
        for _ in range(2):
            adapter(make_batch("image_bn", 16, 0))
    assert caplog.text.count("all 16 samples of batch 0 are predicted as one class") == 1
