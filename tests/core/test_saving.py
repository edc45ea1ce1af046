"""Saved adapters: what is loaded goes on bit for bit, and what does not fit is refused."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import ctta
from ctta import DSS, TENT, Execution, Guard, ModelError, StateError
from ctta.base.tensor_file import read_tensors, write_tensors
from ctta.core.saving import KIND
from ctta.methods import METHODS
from ctta.testing.contract import flat_state, same
from ctta.testing.networks import CLASSES, make_network, make_stream

STREAM = make_stream("image_bn", 5)


def made(name, **arguments):
    adapter = METHODS[name](make_network("image_bn"), **arguments)
    adapter.prepare((x, torch.arange(len(x)) % CLASSES) for x in STREAM[:2])
    return adapter


def goes_on(adapter, path, **arguments):
    """The adapter that is loaded from a file, after it has gone on as the saved one does."""
    adapter.save(path)
    model = make_network("image_bn")
    nn.init.zeros_(model.head.weight)  # weights come from the file
    loaded = ctta.load(path, model, **arguments)
    assert type(loaded) is type(adapter)
    assert (loaded.preset, loaded.config, loaded.batches) == (adapter.preset, adapter.config, adapter.batches)
    for x in STREAM[2:]:
        assert torch.equal(adapter(x), loaded(x))
    one, other = ({k: v for k, v in each.state_dict().items() if k != "_extra_state"} for each in (adapter, loaded))
    assert same(flat_state(one), flat_state(other))
    return loaded


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_goes_on(tmp_path, name):
    adapter = made(name)
    for x in STREAM[:2]:
        adapter(x)
    loaded = goes_on(adapter, tmp_path / "a.safetensors")
    loaded.reset()
    adapter.reset()
    assert torch.equal(adapter(STREAM[0]), loaded(STREAM[0]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"preset": "cifar100", "lr": 0.01, "seed": 3},
        {"preset": "paper"},
        {"config": METHODS["sar"].config_type(frozen=("conv2", "bn2"))},
        {"boundaries": "detected", "inputs": "any", "classes": CLASSES, "statistics": "running"},
        {"execution": Execution(precision="bfloat16", channels_last=True)},
    ],
    ids=lambda arguments: ", ".join(arguments),
)
@pytest.mark.parametrize("batches", [0, 2])
def test_it_goes_on_however_it_was_made(tmp_path, arguments, batches):
    """Also if it was saved before the first batch, whose shape decides on the settings."""
    adapter = made("sar", **arguments)
    for x in STREAM[:batches]:
        adapter(x)
    loaded = goes_on(adapter, tmp_path / "a.safetensors")
    assert loaded.execution == adapter.execution
    assert loaded.settings_by_shape == adapter.settings_by_shape


def test_a_guard_goes_on_with_its_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr("ctta.core.guard.APART", 1)
    guard, heard = Guard(made("tent"), every=2), []
    guard.state = replace(guard.state, trial=0)
    for x in STREAM[:2]:
        guard(x)
    assert guard.snapshots
    loaded = goes_on(guard, tmp_path / "a.safetensors", on_event=heard.append)
    assert (loaded.every, loaded.state) == (2, guard.state)
    assert loaded.on_event == heard.append
    assert [one.batch for one in loaded.snapshots] == [one.batch for one in guard.snapshots]


def test_tied_weights_and_names_with_slashes(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a/b": nn.Linear(12, 12), "c": nn.Linear(12, 12)})
            self.parts["c"].weight = self.parts["a/b"].weight
            self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 3)

        def forward(self, x):
            return self.head(self.norm(self.parts["c"](self.parts["a/b"](x.flatten(1)))))

    x = torch.rand(4, 3, 2, 2)
    adapter = TENT(Tied(), preset="cifar10")
    adapter(x)
    adapter.save(tmp_path / "a.safetensors")
    loaded = ctta.load(tmp_path / "a.safetensors", Tied())
    assert torch.equal(adapter(x), loaded(x))


def test_views_of_ones_own_are_given_again(tmp_path):
    def shifted(x, random):
        return x.roll(1, -1)

    path = tmp_path / "a.safetensors"
    DSS(make_network("image_bn"), views=shifted).save(path)
    with pytest.raises(StateError, match=r"views of its own\. Give them"):
        ctta.load(path, make_network("image_bn"))
    assert ctta.load(path, make_network("image_bn"), views=shifted).views is shifted
    DSS(make_network("image_bn")).save(path)
    with pytest.raises(StateError, match="without views"):
        ctta.load(path, make_network("image_bn"), views=shifted)


class Mine(TENT):
    """A method that ctta does not know."""

    name, title = "mine", "Mine"


def test_a_method_of_ones_own_is_given_as_a_class(tmp_path):
    path = tmp_path / "a.safetensors"
    Mine(make_network("image_bn")).save(path)
    with pytest.raises(StateError, match=r"the method 'mine'\. Give its class: method="):
        ctta.load(path, make_network("image_bn"))
    assert type(ctta.load(path, make_network("image_bn"), method=Mine)) is Mine
    with pytest.raises(StateError, match="saved by method 'mine'"):
        ctta.load(path, make_network("image_bn"), method=TENT)


def test_another_model_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    made("tent").save(path)
    with pytest.raises(StateError, match="another model"):
        ctta.load(path, make_network("image_gn"))
    with pytest.raises(ModelError, match="norm layers and this model has none"):
        ctta.load(path, nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values["made"].update(classes=10**12),
        lambda values: values["made"].update(classes="5"),
        lambda values: values["made"].update(execution={"precision": "wide"}),
        lambda values: values["made"].update(inputs="none"),
        lambda values: values["made"].update(every="x"),
        lambda values: values["made"].update(by_shape=5),
        lambda values: values["made"].update(by_shape=(None, {"model": 5})),
        lambda values: values["made"].pop("boundaries"),
        lambda values: values.pop("versions"),
        lambda values: values["state"].pop("model.bn1.weight"),
        lambda values: values["state"]["_extra_state"].update(config={"lr": -1}),
        lambda values: values["state"]["_extra_state"].update(method=None),
        lambda values: values["state"]["_extra_state"].update(batches=-5),
        lambda values: values["state"]["_extra_state"].update(seed="x"),
        lambda values: values["state"].update({"model.bn1.weight": torch.full((8,), torch.nan)}),
        lambda values: values.update(state=[]),
    ],
)
def test_a_file_that_somebody_else_made_is_refused(tmp_path, spoil):
    """Its checksum fits, so each value is looked at."""
    path = tmp_path / "a.safetensors"
    made("tent", preset="cifar10").save(path)
    values = read_tensors(path, KIND)
    spoil(values)
    write_tensors(path, KIND, values)
    with pytest.raises(StateError):
        ctta.load(path, make_network("image_bn"))


def test_a_folder_as_hugging_face_lays_it_out(tmp_path):
    adapter = Guard(made("tent"))
    adapter(STREAM[0])
    adapter.save_pretrained(tmp_path / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["adapter.safetensors", "config.json"]
    about = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert (about["library_name"], about["method"], about["batches"], about["guard"]) == ("ctta", "tent", 1, True)
    loaded = ctta.load(tmp_path / "mine", make_network("image_bn"))
    assert torch.equal(adapter(STREAM[1]), loaded(STREAM[1]))


def test_pushing_to_the_hub_uploads_that_folder(tmp_path, monkeypatch):
    """A stand-in for huggingface_hub, which copies to a folder what would be uploaded."""

    class HfApi:
        def __init__(self, token=None):
            assert token == "secret"

        def create_repo(self, repo_id, *, private, exist_ok):
            assert (private, exist_ok) == (True, True)
            return types.SimpleNamespace(repo_id=f"me/{repo_id}")

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            for path in Path(folder_path).iterdir():
                (tmp_path / path.name).write_bytes(path.read_bytes())
            return f"https://example.org/{repo_id}"

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(HfApi=HfApi))
    adapter = made("tent")
    assert adapter.push_to_hub("mine", private=True, token="secret") == "https://example.org/me/mine"
    assert torch.equal(ctta.load(tmp_path, make_network("image_bn"))(STREAM[0]), adapter(STREAM[0]))


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ctta.ConfigError, match=r"push_to_hub needs huggingface_hub.*ctta\[hub\]"):
        made("tent").push_to_hub("mine")
