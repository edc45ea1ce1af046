"""Source training: it learns, resumes where it was, and what it writes is a model."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ctta import ConfigError, InputError, ModelError, StateError
from ctta.core.networks import norm_parameters
from ctta.data.dataset import DataSet
from ctta.data.stream import Stream
from ctta.experiments.source_model import Model
from ctta.methods import TTT
from ctta.models import load
from ctta.models.weights import read_metadata
from ctta.training.learner import Learner, train
from ctta.training.recipe import make


def images(n, seed):
    """Class 0 is red, class 1 green, class 2 blue; all of it noisy."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    pixels = random.integers(0, 160, (n, 16, 16, 3))
    pixels[np.arange(n), :, :, labels] += 60
    return pixels.astype(np.uint8), labels


@pytest.fixture
def spec(tmp_path):
    for name, n in (("train", 90), ("test", 30)):
        pixels, labels = images(n, seed=n)
        np.savez(tmp_path / f"{name}.npz", images=pixels, labels=labels, classes=np.array(["red", "green", "blue"]))
    return {
        "data": {"dataset": "arrays", "path": str(tmp_path / "train.npz")},
        "test": {"dataset": "arrays", "path": str(tmp_path / "test.npz")},
        "model": {"name": "small_resnet"},
        "train": {"epochs": 4, "batch": 20, "lr": 0.05, "test_every": 2},
    }


def with_recipe(spec, **recipe):
    return spec | {"train": spec["train"] | recipe}


def drain(spec, out, **options):
    return list(train(make(spec), out, **options))


def lines(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def test_a_training_starts_from_the_weights_it_is_given(tmp_path, spec):
    drain(spec, tmp_path / "first.safetensors")
    spec["model"] |= {"weights": str(tmp_path / "first.safetensors")}
    still = with_recipe(spec, epochs=1, lr=1e-12, weight_decay=0.0)
    (tmp_path / "other.npz").write_bytes((tmp_path / "test.npz").read_bytes())
    still["data"] |= {"path": str(tmp_path / "other.npz")}  # of another mean, which is not asked for
    drain(still, tmp_path / "second.safetensors")
    first, second = (load_file(tmp_path / f"{name}.safetensors") for name in ("first", "second"))
    for name, value in first.items():
        if "running" not in name and "tracked" not in name:
            torch.testing.assert_close(second[name], value, atol=1e-9, rtol=0)
    assert any(not torch.equal(second[name], value) for name, value in first.items() if "running_mean" in name)


def test_what_is_written_is_a_model_that_has_learned(tmp_path, spec):
    states = drain(spec, tmp_path / "out" / "m.safetensors")
    assert [state.done for state in states] == list(range(1, 17)), "4 whole batches per epoch"
    log = lines(tmp_path / "out" / "m.jsonl")
    assert [line["epoch"] for line in log] == [1, 2, 3, 4]
    assert [line["test_error"] is None for line in log] == [True, False, True, False]
    assert log[-1]["loss"] < 0.5 * log[0]["loss"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["m.jsonl", "m.safetensors"]

    about = read_metadata(tmp_path / "out" / "m.safetensors")
    assert (about["model"], about["num_classes"]) == ("small_resnet", "3")
    assert json.loads(about["classes"]) == ["red", "green", "blue"]
    assert json.loads(about["recipe"])["epochs"] == 4

    model = load("small_resnet", weights=tmp_path / "out" / "m.safetensors")  # no word of classes or normalisation
    pixels, labels = images(30, seed=30)
    x = torch.tensor(pixels).permute(0, 3, 1, 2) / 255
    error = 100 * (model(x).argmax(1).numpy() != labels).mean()
    assert f"{error:.2f}" == about["test_error"]
    assert error < 10
    train_pixels = images(90, seed=90)[0] / 255
    assert model.mean.flatten().tolist() == pytest.approx(train_pixels.mean((0, 1, 2)), abs=1e-4)
    assert model.std.flatten().tolist() == pytest.approx(train_pixels.std((0, 1, 2)), abs=1e-4)


@pytest.mark.parametrize("stop", [1, 4, 7, 15])
def test_a_stopped_training_resumes_bit_for_bit(tmp_path, spec, stop):
    spec = with_recipe(spec, label_smoothing=0.1)
    drain(spec, tmp_path / "whole.safetensors")
    running = train(make(spec), tmp_path / "parts.safetensors", checkpoint_seconds=0)
    for _ in range(stop):
        next(running)
    running.close()
    rest = drain(spec, tmp_path / "parts.safetensors")
    assert rest[0].done == stop + 1
    one, two = load_file(tmp_path / "whole.safetensors"), load_file(tmp_path / "parts.safetensors")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert lines(tmp_path / "whole.jsonl") == lines(tmp_path / "parts.jsonl")


def test_the_seed_decides_and_nothing_else(tmp_path, spec):
    def weights(name, **recipe):
        drain(with_recipe(spec, epochs=1, **recipe), tmp_path / name)
        return load_file(tmp_path / name)["fc.weight"]

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights("a.safetensors")
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    torch.manual_seed(2)
    assert torch.equal(first, weights("b.safetensors"))
    assert not torch.equal(first, weights("c.safetensors", seed=1))


def test_nothing_is_overwritten_or_mixed_up(tmp_path, spec):
    out = tmp_path / "m.safetensors"
    running = train(make(spec), out, checkpoint_seconds=0)
    next(running)
    running.close()
    with pytest.raises(StateError, match=r"other settings.*--force"):
        drain(with_recipe(spec, lr=0.1), out)
    drain(with_recipe(spec, epochs=1), out, force=True)
    with pytest.raises(StateError, match=r"exists already.*--force"):
        drain(spec, out)


def test_no_weight_decay_on_norm_layers_and_biases(spec):
    learner = Learner(make(spec))
    decayed, plain = learner.optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (5e-4, 0.0)
    vectors = {id(parameter) for parameter in plain["params"]}
    assert {id(parameter) for parameter in norm_parameters(learner.model)} <= vectors
    assert id(learner.model.fc.bias) in vectors
    assert id(learner.model.fc.weight) in {id(parameter) for parameter in decayed["params"]}
    assert len(vectors) + len(decayed["params"]) == len(list(learner.model.parameters()))


def test_held_out_samples_are_never_learned_from(spec):
    del spec["test"]
    learner = Learner(make(with_recipe(spec, holdout=0.2)))
    assert (len(learner.held), len(learner.rows)) == (18, 72)
    assert sorted([*learner.held, *learner.rows]) == list(range(90))
    seen = set()
    original = learner.domain
    learner.domain = type("Spy", (), {"load": staticmethod(lambda rows: seen.update(rows) or original.load(rows))})()
    for _ in range(2):
        assert sum(len(y) for _, y in learner._batches(0, 0)) == 60
    assert seen.isdisjoint(learner.held)
    assert learner.test_error() is not None


def test_each_epoch_has_an_order_of_its_own(spec):
    learner = Learner(make(spec))
    orders = [[y.tolist() for _, y in learner._batches(epoch, 0)] for epoch in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert [y.tolist() for _, y in learner._batches(1, 2)] == orders[1][2:]


def test_own_networks_and_their_weights(tmp_path, spec):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(),\n"
        "                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))\n"
    )
    spec |= {"model": {"factory": f"{tmp_path}/own.py:make", "mean": [0.5], "std": [0.25]}}
    drain(spec, tmp_path / "a.safetensors")
    drain(spec, tmp_path / "b.safetensors")
    assert torch.equal(
        load_file(tmp_path / "a.safetensors")["6.weight"], load_file(tmp_path / "b.safetensors")["6.weight"]
    )
    model = Model(name=None, factory=f"{tmp_path}/own.py:make", weights=str(tmp_path / "a.safetensors")).load()
    assert (model.mean.item(), model.std.item(), model.training) == (0.5, 0.25, False)
    assert torch.equal(model.model[6].weight, load_file(tmp_path / "a.safetensors")["6.weight"])


def test_a_second_head_learns_quarter_turns_and_is_saved_with_the_network(tmp_path, spec):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1),\n"
        "                         nn.Flatten(), nn.Linear(4, 3))\n"
    )
    own = {"factory": f"{tmp_path}/own.py:make", "mean": [0.5], "std": [0.25]}
    for number, model in enumerate([{"name": "small_resnet"}, own]):
        weights = tmp_path / f"{number}.safetensors"
        drain(with_recipe(spec, epochs=1, auxiliary="rotation") | {"model": model}, weights)
        loaded = Model(model.get("name"), str(weights), model.get("factory")).load()
        adapter = TTT(loaded, joint=True)
        saved = next(value for key, value in load_file(weights).items() if key.endswith("rotation_head.weight"))
        assert torch.equal(adapter.rotation.weight, saved)
        assert saved.any()
        assert adapter(torch.rand(4, 3, 16, 16)).shape == (4, 3)


class Clouds:
    name, severity = "clean", 0

    def __len__(self):
        return 40

    def load(self, rows):
        """Flat clouds and tall ones."""
        points = np.random.default_rng(0).normal(size=(40, 32, 3)).astype(np.float32)[rows]
        points[rows % 2 == 0, :, 1] *= 0.1
        return points, rows % 2


class CloudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.body(x).amax(1))


def test_clouds(tmp_path, monkeypatch):
    clouds = DataSet("clouds", "none", lambda data, pairs: Stream((Clouds(),), data.batch), needs_path=False)
    monkeypatch.setattr("ctta.data.datasets.DATASETS", {"clouds": clouds})
    monkeypatch.setattr("ctta.training.recipe.from_factory", lambda spec: CloudNet())
    spec = {"data": {"dataset": "clouds"}, "model": {"factory": "a:b"}}
    drain(spec | {"train": {"epochs": 20, "batch": 8, "lr": 0.05}}, tmp_path / "m.safetensors")
    state = load_file(tmp_path / "m.safetensors")
    assert set(state) == set(CloudNet().state_dict()), "clouds have no normalisation"
    network = CloudNet()
    network.load_state_dict(state)
    points, labels = Clouds().load(np.arange(40))
    assert (network(torch.tensor(points)).argmax(1).numpy() == labels).mean() > 0.9


class Penalised(nn.Module):
    """Linear in the mean colour; with a penalty of 7 more than the mean of what it sees."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.head(x.mean((2, 3)))

    def regularized(self, x):
        return self(x), 7 + x.mean()


@pytest.mark.parametrize("precision", ["full", "autocast"])
def test_a_network_may_add_to_its_loss(tmp_path, spec, monkeypatch, precision):
    monkeypatch.setattr("ctta.training.recipe.from_factory", lambda spec: Penalised())
    spec = with_recipe(spec, augment="none", batch=90, epochs=1, precision=precision) | {"model": {"factory": "a:b"}}
    (state,) = drain(spec, tmp_path / "m.safetensors")
    # Three equal logits, log 3; one batch of all samples, normalised, has mean 0.
    assert state.loss == pytest.approx(np.log(3) + 7, abs=1e-2)


def test_labels_and_losses_that_cannot_be_learned_from(tmp_path, spec):
    with pytest.raises(InputError, match=r"0 to 1, as the model has 2 classes\. Found 0 to 2"):
        drain(spec | {"model": {"name": "small_resnet", "classes": 2}}, tmp_path / "m.safetensors")
    with pytest.raises(ModelError, match=r"The loss is (nan|inf).*Lower train\.lr"):
        drain(with_recipe(spec, lr=1e30, epochs=20, warmup=0.0), tmp_path / "m.safetensors")
    with pytest.raises(ConfigError, match=r"one domain, and data has 2 \(fog, snow\)"):
        drain(spec | {"data": spec["data"] | {"domains": ["fog", "snow"]}}, tmp_path / "m.safetensors")


def moment(state, value):
    state["optimizer"]["state"][0]["momentum_buffer"] = value


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda state: moment(state, torch.zeros(1)), "momentum_buffer"),
        (lambda state: moment(state, torch.zeros(4).to_sparse()), "momentum_buffer"),
        (lambda state: state["place"].update(step=-1), "step -1"),
        (lambda state: state["place"].update(step=10**9), "step 1000000000"),
    ],
    ids=["one moment", "a sparse moment", "before the start", "beyond the end"],
)
def test_a_state_that_does_not_fit_is_refused(spec, spoil, words):
    made = Learner(make(spec))
    next(iter(made.run()))
    state = copy.deepcopy(made.state())
    spoil(state)
    with pytest.raises(StateError, match=words):
        Learner(make(spec)).load(state)
