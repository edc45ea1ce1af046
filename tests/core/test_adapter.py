"""The promises of Adapter that the contract does not cover: errors, wrappers, devices and precision, threads."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import ctta
from ctta import DSS, METHODS, TENT, ConfigError, InputError, ModelError, Source, StateError
from ctta.testing.networks import CLASSES, ImageBN, make_batch, make_network

X = make_batch("image_bn", 4, 0)


def test_create_by_name():
    adapter = ctta.create("dss", make_network("image_bn"), lambda_=0.5, seed=3)
    assert isinstance(adapter, DSS)
    assert adapter.config.lambda_ == 0.5
    assert adapter.seed == 3


@pytest.mark.parametrize(
    ("method", "fields", "words"),
    [
        ("dsss", {}, ["no method 'dsss'", "'dss'"]),
        ("dss", {"lamda_": 0.5}, ["no field 'lamda_'", "'lambda_'"]),
        ("dss", {"temperature": 0.0}, ["'temperature'", "more than 0", "Got 0.0"]),
        ("dss", {"delta": "median"}, ["'sum' or 'mean' or 'running'", "'median'"]),
        ("dss", {"views": True}, ["'views'", "a whole number"]),
        ("dss", {"threshold": "fixed"}, ["a number or 'dynamic'"]),
        ("tent", {"lr": "fast", "optimizer": "lion", "rate": 1}, ["'lr'", "'optimizer'", "no field 'rate'"]),
        ("dss", {"preset": "cifar"}, ["no preset 'cifar'", "'cifar10'"]),
    ],
)
def test_wrong_names_and_values(method, fields, words):
    with pytest.raises(ConfigError) as caught:
        ctta.create(method, make_network("image_bn"), **fields)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_presets_are_data_and_fields_go_over_them():
    network = make_network("image_bn")
    assert DSS(network, preset="imagenet").config.augmentation_threshold == 0.1
    assert DSS(network, preset="cifar100").config.augmentation_threshold == 0.72
    assert DSS(network, preset="cifar100", augmentation_threshold=0.5).config.augmentation_threshold == 0.5
    own = DSS(network, ctta.methods.dss.DSSConfig(lr=0.5), ema=0.9)
    assert (own.config.lr, own.config.ema, own.preset) == (0.5, 0.9, "own")
    with pytest.raises(ConfigError, match="takes a DSSConfig"):
        DSS(network, ctta.methods.tent.TENTConfig())
    for method in METHODS.values():
        for preset in ("cifar10", "cifar100", "imagenet", "clouds", "paper"):
            method(network, preset=preset)


@pytest.mark.parametrize("method", ["tent", "bn_adapt"])
def test_a_model_without_norm_layers(method):
    with pytest.raises(ModelError, match="has none"):
        ctta.create(method, nn.Sequential(nn.Flatten(), nn.Linear(768, 5)))


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
        ctta.create(method, OneByOne())(X[:1])
    assert ctta.create(method, OneByOne(), statistics="running")(X[:1]).shape == (1, CLASSES)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, on the first torch.compile
def test_wrapped_models_are_unwrapped():
    network = make_network("image_bn")
    expected = TENT(network)(X)
    assert torch.equal(TENT(nn.DataParallel(network))(X), expected)
    assert torch.equal(TENT(torch.compile(network))(X), expected)


def test_models_that_cannot_be_used():
    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, CLASSES)
            self.table = self.head.weight * 2

    with pytest.raises(ModelError, match="register it as a buffer"):
        Source(Computed())
    with pytest.raises(ModelError, match="lazy layers"):
        Source(nn.Sequential(nn.LazyLinear(5)))
    with pytest.raises(ModelError, match=r"must be a torch\.nn\.Module"):
        Source(lambda x: x)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_models_are_refused():
    with pytest.raises(ModelError, match="scripted"):
        Source(torch.jit.script(nn.Linear(2, 2)))


def test_models_made_under_inference_mode_work():
    with torch.inference_mode():
        network = ImageBN()
        adapter = TENT(network)
        assert adapter(X).shape == (4, CLASSES)
    assert adapter(X).shape == (4, CLASSES)


@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_to_moves_the_optimiser_too(preset):
    adapter = TENT(make_network("image_bn"), preset=preset)
    adapter(X)
    adapter.double()
    states = [value for slots in adapter.optimizer.state.values() for key, value in slots.items() if key != "step"]
    assert states
    assert all(value.dtype == torch.float64 for value in states)
    assert adapter(X.double()).dtype == torch.float64
    adapter.reset()
    assert adapter(X.double()).dtype == torch.float64


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


def test_state_of_another_method_or_with_other_settings_is_refused():
    network = make_network("image_bn")
    state = TENT(network, lr=0.5).state_dict()
    with pytest.raises(StateError, match=r"'tent'.*'dss'"):
        DSS(network).load_state_dict(state)
    with pytest.raises(StateError, match=r"lr=0\.5"):
        TENT(network, preset="cifar10").load_state_dict(state)
    with pytest.raises(StateError, match="not an adapter"):
        TENT(network).load_state_dict(network.state_dict())
    with pytest.raises(StateError, match="assign"):
        TENT(network).load_state_dict(state, assign=True)
    other = TENT(make_network("image_gn"), lr=0.5)
    weights = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(StateError, match="another model"):
        other.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(weights, other.parameters(), strict=True))


def test_a_fresh_adapter_without_a_preset_takes_the_saved_settings():
    network = make_network("image_gn")
    adapter = DSS(network, views=1)
    large = torch.rand(2, 3, 80, 80)
    adapter(large)
    other = DSS(network, views=1)
    other.load_state_dict(adapter.state_dict())
    assert other.preset == "imagenet"
    assert torch.equal(adapter(large), other(large))


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


def test_slightly_out_of_range_is_rounding_not_an_error():
    adapter = DSS(make_network("image_bn"), views=1)
    adapter(X.clamp(0, 1) * 1.0 + 5e-4)
    with pytest.raises(InputError, match=r"ctta\.Normalized"):
        adapter(X - 0.3)
    TENT(make_network("image_bn"))(X - 0.3)  # makes no views: any range goes


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


@pytest.mark.parametrize("kind", ["batch", "mixed", "running"])
def test_autocast_works_with_all_statistics(kind):
    adapter = TENT(make_network("image_bn"), statistics=kind)
    with torch.autocast("cpu", torch.bfloat16):
        assert adapter(X).isfinite().all()


def test_weights_too_coarse_to_learn_are_refused():
    with pytest.raises(ModelError, match="too coarse"):
        TENT(make_network("image_bn").bfloat16())
    assert Source(make_network("image_bn").bfloat16())(X.bfloat16()).isfinite().all()


def test_nothing_to_learn():
    plain = nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(768, 5))
    with pytest.raises(ModelError, match="nothing to learn"):
        TENT(plain)
    adapter = TENT(make_network("image_bn"))
    adapter.requires_grad_(False)
    with pytest.raises(ModelError, match="no gradient"):
        adapter(X)


def test_whole_number_parameters_ride_along():
    network = make_network("image_bn")
    network.order = nn.Parameter(torch.arange(3), requires_grad=False)
    network.scale = nn.Parameter(torch.tensor(2.0))
    adapter = DSS(network, views=1, restore=0.9)
    adapter(X)
    assert torch.equal(adapter.teacher.order, torch.arange(3))


def test_copies_and_moves_under_inference_mode_still_learn():
    adapter = TENT(make_network("image_bn"))
    adapter(X)
    with torch.inference_mode():
        twin = copy.deepcopy(adapter)
        adapter.double()
    assert twin(X).isfinite().all()
    assert adapter(X.double()).isfinite().all()


def test_a_gate_that_never_opens_is_reported(caplog):
    with caplog.at_level("WARNING", "ctta"):
        DSS(make_network("image_gn"), views=1)(torch.rand(2, 3, 80, 80))
    assert "never averaged" in caplog.text
    caplog.clear()
    with caplog.at_level("WARNING", "ctta"):
        ctta.BNAdapt(make_network("vit_ln"))(X)
    assert "no BatchNorm layer" in caplog.text


def test_loading_through_a_parent_checks_the_settings_too():
    state = nn.Sequential(TENT(make_network("image_bn"), preset="cifar10", lr=0.5)).state_dict()
    with pytest.raises(StateError, match=r"lr=0\.5"):
        nn.Sequential(TENT(make_network("image_bn"), preset="cifar10")).load_state_dict(state)
