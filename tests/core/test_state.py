"""The state: refused if it does not fit, whole if it does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ctta import DSS, TENT, InputError, StateError
from ctta.testing.networks import make_batch, make_network

X = make_batch("image_bn", 4, 0)


def test_state_of_another_method_or_with_other_settings_is_refused():
    network = make_network("image_bn")
    state = TENT(network, lr=0.5).state_dict()
    with pytest.raises(StateError, match=r"'tent'.*'dss'"):
        DSS(network).load_state_dict(state)
    with pytest.raises(StateError, match=r"lr=0\.5"):
        TENT(network, preset="cifar10").load_state_dict(state)
    with pytest.raises(StateError, match="not an adapter"):
        TENT(network).load_state_dict(network.state_dict())
    with pytest.raises(StateError, match="assign"):
        TENT(network).load_state_dict(state, assign=True)
    other = TENT(make_network("image_gn"), lr=0.5)
    weights = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(StateError, match="another model"):
        other.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(weights, other.parameters(), strict=True))


def test_a_fresh_adapter_without_a_preset_takes_the_saved_settings():
    network = make_network("image_gn")
    adapter = DSS(network, views=1)
    large = torch.rand(2, 3, 80, 80)
    adapter(large)
    other = DSS(network, views=1)
    other.load_state_dict(adapter.state_dict())
    assert other.preset == "imagenet"
    assert torch.equal(adapter(large), other(large))


def test_copies_and_moves_under_inference_mode_still_learn():
    adapter = TENT(make_network("image_bn"))
    adapter(X)
    with torch.inference_mode():
        twin = copy.deepcopy(adapter)
        adapter.double()
    assert twin(X).isfinite().all()
    assert adapter(X.double()).isfinite().all()


def test_loading_through_a_parent_checks_the_settings_too():
    state = nn.Sequential(TENT(make_network("image_bn"), preset="cifar10", lr=0.5)).state_dict()
    with pytest.raises(StateError, match=r"lr=0\.5"):
        nn.Sequential(TENT(make_network("image_bn"), preset="cifar10")).load_state_dict(state)


@pytest.mark.parametrize("spoil", [lambda x: x * float("nan"), lambda x: (x - 0.5) / 0.2])
def test_a_first_batch_that_is_refused_leaves_the_settings_as_they_were(spoil):
    adapter = DSS(make_network("image_gn"), views=1)
    before = adapter.preset, adapter.config, [value.clone() for value in adapter.parameters()]
    with pytest.raises(InputError):
        adapter(spoil(torch.rand(2, 3, 80, 80)))
    assert (adapter.preset, adapter.config) == before[:2]
    assert all(torch.equal(one, other) for one, other in zip(adapter.parameters(), before[2], strict=True))
    adapter(torch.rand(2, 3, 80, 80))
    assert adapter.preset == "imagenet"
