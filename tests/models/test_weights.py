"""Files of weights: names, broken files of every kind, files that want to run code."""

from __future__ import annotations

import gzip
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ctta.base.errors import InputError
from ctta.models.weights import read_metadata, read_state, rename, short, take_normalization, trained_classes
from saved_weights import State


def test_short_names_that_collide_stay_as_they_are() -> None:
    state = {"module.fc.weight": torch.zeros(1), "fc.weight": torch.ones(1)}
    assert rename(state, ["fc.weight"]) == state
    assert short("module.backbone.net.fc.bias") == "fc.bias"
    assert short("modules.fc") == "modules.fc"


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
        read_state(path)
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
        read_state(path)
    assert not marker.exists()


def test_metadata_of_trained_weights(path: Path) -> None:
    save_file({"fc.weight": torch.zeros(2)}, path, metadata={"num_classes": "7", "name": "x"})
    assert read_metadata(path) == {"num_classes": "7", "name": "x"}
    assert trained_classes(path) == 7
    torch.save({"fc.weight": torch.zeros(2)}, path)
    assert (read_metadata(path), trained_classes(path)) == ({}, None)


def test_normalisation_is_taken_out_unless_the_model_wants_it() -> None:
    state = {"mu": torch.tensor([0.25, 0.5]).view(1, 2, 1, 1), "sigma": torch.ones(2), "fc.weight": torch.zeros(1)}
    assert take_normalization(dict(state), ["mu", "sigma", "fc.weight"]) is None
    assert take_normalization(state, ["fc.weight"]) == ((0.25, 0.5), (1.0, 1.0))
    assert list(state) == ["fc.weight"]
