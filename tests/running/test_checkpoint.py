"""The state of an adapter on disk."""

from __future__ import annotations

import torch

from ctta import TENT
from ctta.running import checkpoint
from tiny import network


def test_an_adapter_goes_on_from_its_file(tmp_path):
    torch.manual_seed(0)
    first, second, third = (torch.rand(4, 3, 8, 8) for _ in range(3))
    adapter, path = TENT(network(), lr=0.1), tmp_path / "checkpoints" / "tent-s0.safetensors"
    assert checkpoint.load(path) is None
    adapter.step(first)
    adapter.step(second)
    checkpoint.save(path, adapter, 2, "ab")
    saved, fresh = checkpoint.load(path), TENT(network(), lr=0.1)
    assert (saved.step, saved.records_sha256) == (2, "ab")
    fresh.load_state_dict(saved.state)
    assert torch.equal(fresh(third), adapter(third))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
