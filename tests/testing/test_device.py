"""The pretended device refuses what a GPU refuses, and allows what it allows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ctta.testing.device import MixedDevicesError, pretended, waits

HERE = torch.ones(3)

REFUSED = {
    "a sum of two": lambda x: x + HERE,
    "a product of matrices": lambda x: torch.ones(2, 3) @ x,
    "a layer left behind": lambda x: torch.nn.Linear(3, 2)(x),
    "in place": lambda x: HERE.clone().add_(x),
    "stacked": lambda x: torch.stack([x, HERE]),
    "stacked numbers": lambda x: torch.stack([x.sum(), torch.tensor(1.0)]),
    "concatenated": lambda x: torch.cat([x, HERE]),
    "a mask": lambda x: torch.where(HERE > 0, x, x),
    "gathered": lambda x: x.gather(0, torch.tensor([0, 1])),
    "an index": lambda x: x[torch.tensor([0, 1])],
    "labels of a loss": lambda x: F.cross_entropy(x[None], torch.tensor([1])),
    "a generator of the host": lambda x: x.uniform_(generator=torch.Generator().manual_seed(0)),
    "a generator of the device": lambda x: HERE.clone().uniform_(generator=torch.Generator(x.device).manual_seed(0)),
}
ALLOWED = {
    "a number of the host": lambda x: x + torch.tensor(2.0),
    "a number": lambda x: x * 2,
    "made there": lambda x: x + torch.ones(3, device=x.device),
    "made like it": lambda x: x + torch.zeros_like(x) + x.new_ones(3),
    "from values": lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "moved": lambda x: x + HERE.to(x.device),
    "copied into": lambda x: x.clone().copy_(HERE),
    "drawn there": lambda x: x.clone().normal_(generator=torch.Generator(x.device).manual_seed(0)),
}


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_what_mixes_devices_is_refused(use):
    with pretended() as device:
        x = torch.ones(3).to(device)
        with pytest.raises((MixedDevicesError, RuntimeError), match=r"device"):
            use(x)


@pytest.mark.parametrize("use", ALLOWED.values(), ids=ALLOWED)
def test_what_does_not_is_computed(use):
    with pretended() as device:
        assert use(torch.ones(3).to(device)).device == device


def test_numpy_needs_a_copy_on_the_host():
    with pretended() as device:
        x = torch.ones(3).to(device)
        with pytest.raises((TypeError, RuntimeError)):
            x.numpy()
        assert x.cpu().numpy().tolist() == [1.0, 1.0, 1.0]


def test_values_gradients_and_views_are_those_of_the_processor():
    weights, x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.ones(2, 3)
    here = weights.clone().requires_grad_()
    F.linear(x, here).square().sum().backward()
    with pretended() as device:
        there = weights.to(device).requires_grad_()
        F.linear(x.to(device), there).square().sum().backward()
        assert torch.equal(there.grad.cpu(), here.grad)
        whole = torch.zeros(4, device=device)
        whole[:2].add_(1)
        assert whole.tolist() == [1, 1, 0, 0]
        assert whole._version == 1


def test_reads_and_copies_that_wait_are_counted():
    with pretended() as device:
        x = torch.ones(3).to(device, non_blocking=True)
        assert waits == []
        x.to(device), x.double(), x.sum(), x.clone()
        assert waits == [], "nothing of it leaves the device"
        for use in (float, bool):
            use(x.sum())
        x.tolist(), x.cpu(), HERE.to(device), x[x > 0], x.nonzero()
        assert waits == ["_local_scalar_dense"] * 2 + ["read", "read", "copy", "index", "nonzero"]
        waits.clear()
        x.copy_(HERE, non_blocking=True), x.copy_(HERE), HERE.clone().copy_(x), x.copy_(x.clone())
        assert waits == ["copy", "read"]


def test_afterwards_everything_is_as_before():
    generator = torch.Generator
    with pretended():
        pass
    assert torch.Generator is generator
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(1, device="lazy")
