"""Files of saved adapters that were damaged, cut, or made by somebody else: refused whole, or loaded as they were."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

import ctta
import damage
from ctta import TENT, Guard, StateError
from ctta.testing.contract import flat_state, same
from ctta.testing.networks import make_network, make_stream

NETWORK, STREAM = make_network("image_bn"), make_stream("image_bn", 3)  # adapters take a copy of the network


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a guarded adapter's file, and its state."""
    guard = Guard(TENT(NETWORK))
    for x in STREAM:
        guard(x)
    path = tmp_path_factory.mktemp("saved") / "a.safetensors"
    guard.save(path)
    return path.read_bytes(), flat_state(guard.state_dict())


def loads_or_refuses(path, wanted):
    """Whether the file was loaded, as it was saved; otherwise there is a sentence with its name."""
    try:
        loaded = ctta.load(path, NETWORK)
    except StateError as error:
        said = str(error)
    else:
        assert same(flat_state(loaded.state_dict()), wanted)
        return True
    assert path.name in said
    return False


def test_a_single_bit(tmp_path, saved, attempt):
    """One bit is turned, in bytes all over the header and the tensors."""
    content, wanted = saved
    path, header = tmp_path / "a.safetensors", 8 + int.from_bytes(content[:8], "little")
    places = [*range(0, header, 7), *range(header, len(content), 97), len(content) - 1]
    for number, place in enumerate(places):
        spoiled = bytearray(content)
        spoiled[place] ^= 1 << number % 8
        path.write_bytes(spoiled)
        assert not loads_or_refuses(path, wanted), f"byte {place} of {len(content)}"
        attempt("damaged files of adapters")


@pytest.mark.parametrize("kind", list(damage.FILES))
def test_damaged_files(tmp_path, saved, attempt, kind):
    content, wanted = saved
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    damage.FILES[kind](path)
    assert not loads_or_refuses(path, wanted)
    attempt("damaged files of adapters")


def test_files_that_others_made(tmp_path, saved, attempt):
    path = tmp_path / "a.safetensors"
    heads = ["", "[]", "5", "null", "{", '{"kind": "adapter state"}', '{"kind": "adapter state", "version": 1}']
    heads += ["[" * 100_000, json.dumps({"kind": "adapter state", "version": 10**400})]
    for head in heads:
        save_file({"a": torch.zeros(2)}, path, {"ctta": head})
        assert not loads_or_refuses(path, saved[1])
        attempt("damaged files of adapters")
    torch.save(TENT(make_network("image_bn")).state_dict(), path)
    assert not loads_or_refuses(path, saved[1])
    attempt("damaged files of adapters")
