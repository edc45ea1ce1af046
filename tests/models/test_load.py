"""Loading: wrappers, prefixes, broken files, mismatches, normalisation, packages, real checkpoints."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import ctta
from ctta.base.errors import ConfigError, InputError, ModelError
from ctta.models import MODELS, load
from ctta.models.load import find
from ctta.models.weights import read_state, rename, sha256, short
from needs import DATA

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    model = MODELS["cifar_resnet20"].build().eval()
    for value in model.state_dict().values():
        if value.dim() == 1:
            value.add_(torch.rand_like(value))
    return model


@pytest.fixture(scope="module")
def state(model: nn.Module) -> State:
    return model.state_dict()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"


def same(loaded: nn.Module, model: nn.Module, mean: Any = None, std: Any = None) -> bool:
    entry = MODELS["cifar_resnet20"]
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (mean or entry.mean, std or entry.std))
    x = torch.rand(2, 3, 32, 32)
    return torch.equal(loaded(x), model((x - mean) / std))


def prefixed(state: State, prefix: str) -> State:
    return {prefix + key: value for key, value in state.items()}


# Wrappers and prefixes


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


def test_short_names_that_collide_stay_as_they_are() -> None:
    state = {"module.fc.weight": torch.zeros(1), "fc.weight": torch.ones(1)}
    assert rename(state, ["fc.weight"]) == state
    assert short("module.backbone.net.fc.bias") == "fc.bias"
    assert short("modules.fc") == "modules.fc"


# Normalisation


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


# Mismatches


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


# Broken files


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def write_script(path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), path)


def cut(path: Path, state: State, *, new: bool) -> None:
    torch.save(state, path, _use_new_zipfile_serialization=new)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_safetensors(path: Path, state: State) -> None:
    save_file(state, path)
    path.write_bytes(path.read_bytes()[:5000])


def plain_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 1\n"
BROKEN: dict[str, tuple[Callable[[Path, State], object], str]] = {
    "absent": (lambda p, s: None, "There is no file"),
    "folder": (lambda p, s: p.mkdir(), "There is no file"),
    "empty": (lambda p, s: p.touch(), "is empty"),
    "html": (lambda p, s: p.write_text("\n<!DOCTYPE html><html>virus scan"), "is a web page"),
    "lfs": (lambda p, s: p.write_text(LFS), "git lfs pull"),
    "gzip": (lambda p, s: p.write_bytes(gzip.compress(b"weights")), "Unpack it"),
    "zip": (lambda p, s: plain_zip(p), "not one that torch.save wrote"),
    "cut": (lambda p, s: cut(p, s, new=True), "is truncated"),
    "cut, old format": (lambda p, s: cut(p, s, new=False), "truncated, damaged"),
    "cut safetensors": (cut_safetensors, "truncated or damaged"),
    "text": (lambda p, s: p.write_text("not weights"), "truncated, damaged"),
    "one byte": (lambda p, s: p.write_bytes(b"\x80"), "truncated, damaged"),
    "no tensors": (lambda p, s: torch.save({"epoch": 3}, p), "no weights by name, but the keys epoch"),
    "one tensor": (lambda p, s: torch.save(torch.zeros(2), p), "no weights by name"),
    "whole model": (lambda p, s: torch.save(nn.Linear(2, 2), p), "wants to run code .torch.nn.modules.linear.Linear."),
    "nan": (lambda p, s: torch.save(s | {"bn1.weight": torch.full((16,), torch.nan)}, p), "NaN or infinity in 1"),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_broken_files_are_refused(kind: str, state: State, path: Path) -> None:
    write, message = BROKEN[kind]
    write(path, state)
    with pytest.raises(InputError, match=message) as error:
        load("cifar_resnet20", weights=path)
    assert str(path) in str(error.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused(path: Path) -> None:
    write_script(path)
    with pytest.raises(InputError, match="TorchScript"):
        read_state(path)


@pytest.mark.parametrize("how", ["new", "old", "plain"])
def test_code_never_runs(how: str, state: State, path: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    content = {"state_dict": state, "extra": Evil(marker)}
    if how == "plain":
        path.write_bytes(pickle.dumps({"extra": Evil(marker)}, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "new")
    with pytest.raises(InputError, match="wants to run code"):
        load("cifar_resnet20", weights=path)
    assert not marker.exists()


# Names and packages


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


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with timm's interface and one model; its hub knows no cached file."""
    config = SimpleNamespace(num_classes=10, hf_hub_id="timm/tiny", to_dict=dict)
    timm: Any = ModuleType("timm")
    timm.__version__, timm.is_model = "1.0", lambda name: name == "tiny"
    timm.get_pretrained_cfg = lambda name: config
    timm.create_model = lambda name, pretrained, num_classes: MODELS["cifar_resnet20"].build(num_classes)
    data: Any = ModuleType("timm.data")
    data.resolve_data_config = lambda pretrained_cfg: {
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
        "input_size": (3, 96, 96),
    }
    hub: Any = ModuleType("huggingface_hub")
    hub.try_to_load_from_cache = lambda repository, file: None
    for module in (timm, data, hub):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_package_gives_its_own_metadata(fake_timm: None, model: nn.Module, state: State, path: Path) -> None:
    entry = find("timm:tiny")
    assert (entry.num_classes, entry.mean, entry.std, entry.input_size) == (10, (0.5,) * 3, (0.25,) * 3, 96)
    torch.save(state, path)
    assert same(load("timm:tiny", weights=path), model, [0.5] * 3, [0.25] * 3)
    with pytest.raises(ConfigError, match="weights='pretrained'"):
        load("timm:tiny")
    with pytest.raises(InputError, match="not in the local cache"):
        load("timm:tiny", weights="pretrained")
    with pytest.raises(ConfigError, match="no model 'other'"):
        load("timm:other")


def test_a_transformers_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=7)
    network = transformers.ResNetForImageClassification(config).eval()
    network.save_pretrained(tmp_path)
    images = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"shortest_edge": 48}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    x = torch.rand(2, 3, 48, 48)
    assert find(f"hf:{tmp_path}").input_size == 48
    assert torch.equal(load(f"hf:{tmp_path}", weights="pretrained")(x), network((x - 0.5) / 0.5).logits)


# Real checkpoints


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
