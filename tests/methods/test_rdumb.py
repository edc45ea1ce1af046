"""RDumb: ETA that starts again every so many batches."""

from __future__ import annotations

import pytest
import torch

from ctta import ETA, InputError, RDumb
from ctta.testing.contract import flat_state, predictions, same
from ctta.testing.networks import make_batch
from plain import make_decisive

BATCHES = [make_batch("image_bn", 32, seed) for seed in range(10)]


def test_it_is_eta_that_is_reset():
    network = make_decisive()
    adapter, fresh = RDumb(network, preset="cifar10", reset_every=3, lr=0.02), ETA(network, preset="cifar10", lr=0.02)
    for number, x in enumerate(BATCHES):
        if number % 3 == 0:
            fresh.reset()
        assert torch.equal(adapter(x), fresh(x))
    assert torch.equal(adapter.average, fresh.average)
    assert RDumb(network, preset="cifar100").config.similarity == 0.4
    assert RDumb(network).config.reset_every == 1000


def test_a_bad_batch_does_not_reset():
    adapter = RDumb(make_decisive(), preset="cifar10", reset_every=2, lr=0.02)
    predictions(adapter, BATCHES[:2])
    before = flat_state(adapter.state_dict())
    with pytest.raises(InputError, match="NaN or infinity"):
        adapter(BATCHES[2] * float("nan"))
    assert same(before, flat_state(adapter.state_dict()))
