"""Values and tensors in one file: what is read is what was written, or nothing."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from ctta import StateError
from ctta.base.tensor_file import read_tensors, write_tensors

SHARED = torch.arange(6.0)
VALUES = {
    "plain": [1, -2.5, None, True, "ä\n\ud800", {}, [], float("inf")],
    "tuple": (1, ("a", [2])),
    "numbers": {0: {"a": torch.tensor(3)}, (1, 2): 4},
    "$tensor": "not a tensor",
    "a/b": torch.tensor([1.0]),
    "a": {"b": torch.tensor([2.0])},
    "kinds": [torch.zeros(2, 3, dtype=kind) for kind in (torch.bfloat16, torch.float64, torch.int8, torch.bool)],
    "empty": torch.zeros(2, 0),
    "shared": [SHARED, SHARED, SHARED[:3]],
    "strided": torch.arange(6).reshape(2, 3).t(),
    "channels last": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_what_is_read_is_what_was_written(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, "thing", VALUES)
    assert same(read_tensors(path, "thing"), VALUES)
    assert torch.equal(load_file(path)["numbers/0/a"], torch.tensor(3)), "it is a file of safetensors"
    first = path.read_bytes()
    write_tensors(path, "thing", VALUES)
    assert path.read_bytes() == first, "the same values give the same bytes"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [object(), {1}, torch.zeros(2).to_sparse(), torch.zeros(2, dtype=torch.complex128)])
def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path, value):
    path = tmp_path / "x.safetensors"
    write_tensors(path, "thing", VALUES)
    first = path.read_bytes()
    with pytest.raises(StateError, match=r"x\.safetensors cannot be written.*as it was before"):
        write_tensors(path, "thing", {"a": [value]})
    assert path.read_bytes() == first


def test_files_of_another_kind_or_version_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_tensors(path, "thing", VALUES)
    with pytest.raises(StateError, match="holds no adapter state"):
        read_tensors(path, "adapter state")
    with monkeypatch.context() as patched:
        patched.setattr("ctta.base.tensor_file.VERSION", 2)
        write_tensors(path, "thing", VALUES)
    with pytest.raises(StateError, match="has format 2, and this version of ctta reads format 1"):
        read_tensors(path, "thing")
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(StateError, match="holds no thing of ctta"):
        read_tensors(path, "thing")
    with pytest.raises(StateError, match="is no file"):
        read_tensors(tmp_path, "thing")
