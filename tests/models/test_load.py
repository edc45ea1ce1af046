"""Loading: wrappers, prefixes, mismatches, normalisation, real checkpoints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import ctta
import tiny
from ctta.base.errors import ConfigError, ModelError
from ctta.models import MODELS, load, weights_hash
from ctta.models.weights import sha256
from needs import DATA
from saved_weights import State, prefixed, same


@pytest.mark.parametrize(
    ("wrapper", "prefix"),
    [
        ("", ""),
        ("", "module."),
        ("", "backbone."),
        ("", "_orig_mod."),
        ("state_dict", "module."),
        ("state_dict", "module.model."),
        ("model_state_dict", "net."),
        ("model", "model."),
        ("net", ""),
        ("network", "network."),
        ("model/state_dict", "backbone."),
    ],
)
def test_wrappers_and_prefixes(wrapper: str, prefix: str, model: nn.Module, state: State, path: Path) -> None:
    content: Any = prefixed(state, prefix)
    for key in filter(None, reversed(wrapper.split("/"))):
        content = {"epoch": 3, key: content}
    torch.save(content, path)
    loaded = load("cifar_resnet20", weights=path)
    assert not loaded.training
    assert same(loaded, model)


def test_safetensors_whatever_the_name(model: nn.Module, state: State, path: Path) -> None:
    save_file(state, path)
    assert same(load("cifar_resnet20", weights=str(path)), model)


def test_old_format_half_precision_and_no_batch_counters(state: State, path: Path) -> None:
    old = {k: v.half() for k, v in state.items() if not k.endswith("num_batches_tracked")}
    torch.save(old, path, _use_new_zipfile_serialization=False)
    loaded = load("cifar_resnet20", weights=path)
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}


def test_a_name_beside_the_weights_is_no_wrapper(model: nn.Module, state: State, path: Path) -> None:
    torch.save({"model": "resnet", "state_dict": state, "optimizer": {"state": {}}}, path)  # as AugMix saves
    assert same(load("cifar_resnet20", weights=path), model)


def test_metadata_is_read_as_nothing(model: nn.Module, state: State, path: Path) -> None:
    extra = {"args": argparse.Namespace(lr=0.1), "error": np.float64(0.1), "curve": np.arange(3.0)}
    torch.save({"net": state, **extra}, path)
    assert same(load("cifar_resnet20", weights=path), model)


def test_loading_leaves_the_random_numbers_alone(state: State, path: Path) -> None:
    torch.save(state, path)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load("cifar_resnet20", weights=path)
    assert torch.equal(torch.rand(3), expected)


def test_normalisation_travels(model: nn.Module, state: State, path: Path) -> None:
    torch.save(state, path)
    assert isinstance(load("cifar_resnet20", weights=path), ctta.Normalized)
    assert same(load("cifar_resnet20", weights=path, mean=[0.1] * 3, std=[0.2] * 3), model, [0.1] * 3, [0.2] * 3)
    raw = load("cifar_resnet20", weights=path, mean=[0, 0, 0], std=[1, 1, 1])
    assert not isinstance(raw, ctta.Normalized)
    with pytest.raises(ConfigError, match="mean and std belong together"):
        load("cifar_resnet20", weights=path, mean=[0.5] * 3)


@pytest.mark.parametrize("names", [("mu", "sigma"), ("module.mu", "module.sigma"), ("normalize.mean", "normalize.std")])
def test_normalisation_in_the_file_is_used(names: tuple[str, str], model: nn.Module, state: State, path: Path) -> None:
    mean, std = ([0.25, 0.5, 0.75], [0.5, 0.25, 0.125])
    shaped = [torch.tensor(v).view(1, 3, 1, 1) for v in (mean, std)]
    torch.save(prefixed(state, "module.") | dict(zip(names, shaped, strict=True)), path)
    assert same(load("cifar_resnet20", weights=path), model, mean, std)
    assert same(load("cifar_resnet20", weights=path, mean=[0.5] * 3, std=[0.5] * 3), model, [0.5] * 3, [0.5] * 3)


def test_what_load_gives_can_be_saved_and_loaded(model: nn.Module, state: State, path: Path) -> None:
    torch.save(state, path)
    loaded = load("cifar_resnet20", weights=path, mean=[0.25] * 3, std=[0.5] * 3)
    torch.save(loaded.state_dict(), path)
    assert same(load("cifar_resnet20", weights=path), model, [0.25] * 3, [0.5] * 3)


def test_a_model_with_its_own_buffers_keeps_them(path: Path) -> None:
    state = ctta.models.embedded_model().state_dict()
    torch.save(state, path)
    assert torch.equal(load("small_resnet", weights=path).mean, state["mean"])  # type: ignore[arg-type]


def test_mismatch_lists_what_differs(state: State, path: Path) -> None:
    wrong = {k: v for k, v in state.items() if k != "bn1.weight"} | {"extra.weight": torch.zeros(2)}
    wrong["conv1.weight"] = torch.zeros(16, 1, 3, 3)
    torch.save(wrong, path)
    with pytest.raises(ModelError) as error:
        load("cifar_resnet20", weights=path)
    for part in (
        "1 missing: bn1.weight",
        "1 unexpected: extra.weight",
        "1 of another shape",
        "(16, 1, 3, 3) in the file",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("saved", "classes", "asked", "suggested"),
    [
        ("cifar_resnet32", 10, "cifar_resnet20", "'cifar_resnet32' with num_classes=10"),
        ("cifar_resnet20", 7, "cifar_resnet20", "'cifar_resnet20' with num_classes=7"),
        ("cifar_resnet20_b", 100, "cifar_resnet20_b", "'cifar100_resnet20_b' with num_classes=100"),
        ("resnet26_gn", 10, "resnet26", "'resnet26_gn' with num_classes=10"),
        ("wrn40_2", 10, "wrn28_10", "'wrn40_2' with num_classes=10"),
        ("resnet18", 1000, "resnet50", "'resnet18' with num_classes=1000"),
    ],
)
def test_mismatch_names_the_nearest_model(saved: str, classes: int, asked: str, suggested: str, path: Path) -> None:
    torch.save(prefixed(MODELS[saved].build(classes).state_dict(), "module."), path)
    with pytest.raises(ModelError, match="nearest known model") as error:
        load(asked, weights=path)
    assert suggested in str(error.value)
    assert len(str(error.value)) < 1000


def test_foreign_weights_fit_nothing(path: Path) -> None:
    torch.save(nn.Linear(3, 4).state_dict(), path)
    with pytest.raises(ModelError, match="fit no known model"):
        load("cifar_resnet20", weights=path)


def test_a_known_file_under_another_name_is_named(state: State, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(state, path)
    module = sys.modules["ctta.models.load"]  # the package's attribute of this name is the function
    monkeypatch.setattr(module, "sha256", lambda _: MODELS["cifar_resnet56"].checkpoints[0].sha256 + "0" * 56)
    with pytest.raises(ModelError, match=r"akamaster's resnet56.* belongs to 'cifar_resnet56'"):
        load("cifar_resnet20", weights=path)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_without_weights_it_says_where_they_are(name: str) -> None:
    with pytest.raises(ConfigError, match="nothing is downloaded") as error:
        load(name)
    assert MODELS[name].source in str(error.value)


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'wrn28_10'"):
        load("wrn28-10")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("timm:a", "timm", "timm"),
        ("torchvision:a", "torchvision", "torchvision"),
        ("hf:a", "transformers", "huggingface"),
    ],
)
def test_a_missing_package_is_named(name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs {package}.*pip install 'ctta\[{extra}\]'"):
        load(name)


@pytest.mark.parametrize(
    ("name", "file", "images", "expected"),
    [
        ("cifar_resnet20", "cifar10_resnet20_akamaster.th", "cifar10_test_first5000.npz", 8.2),
        ("cifar100_resnet56_b", "cifar100_resnet56-f2eff4c8.pt", "cifar100_test_first5000.npz", 27.4),
    ],
)
def test_public_weights_are_as_good_as_published(name: str, file: str, images: str, expected: float) -> None:
    weights = DATA / "weights" / file
    if not (weights.exists() and (DATA / images).exists()):
        pytest.skip(f"{weights} or {DATA / images} is not here; CTTA_DATA names the folder")
    assert sha256(weights) == MODELS[name].checkpoints[0].sha256
    with np.load(DATA / images) as data:
        x = torch.tensor(data["images"][:500]).permute(0, 3, 1, 2) / 255
        y = torch.tensor(data["labels"][:500]).long()
    with torch.no_grad():
        error = 100 * (load(name, weights=weights)(x).argmax(1) != y).double().mean().item()
    assert error == pytest.approx(expected, abs=3)
    with pytest.raises(ModelError, match=f"belongs to '{name}'"):
        load("wrn28_10", weights=weights)


def test_the_hash_of_a_model() -> None:
    one, two = tiny.network(), tiny.network()
    assert weights_hash(one) == weights_hash(two)
    two[1].running_mean[0] += 1e-6
    assert weights_hash(one) != weights_hash(two)
    assert weights_hash(one.to(torch.bfloat16)) != weights_hash(tiny.network())
