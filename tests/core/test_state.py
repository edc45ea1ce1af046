"""The state: refused if it does not fit, whole if it does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ctta import DSS, TENT, InputError, StateError
from ctta.testing.contract import flat_state, same
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
    assert other.preset == "imagenet+auto"
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
    assert adapter.preset == "imagenet+auto"


def spoiled(change):
    """A state of an adapter that has learned, with something changed in it."""
    adapter = TENT(make_network("image_bn"), preset="cifar10")
    adapter(X)
    state = copy.deepcopy(adapter.state_dict())
    change(state, state["_extra_state"], state["_extra_state"]["optimizer"])
    return state


def moment(name, make):
    return lambda state, extra, optimizer: optimizer["state"][0].update({name: make()})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (moment("exp_avg", lambda: torch.zeros(1)), r"exp_avg of parameter 0 is torch.float32 \(1,\) instead of"),
        (moment("exp_avg_sq", lambda: torch.zeros(10**6)), r"\(1000000,\) instead of"),
        (moment("exp_avg", lambda: torch.full((8,), float("nan"))), "not finite"),
        (moment("exp_avg_sq", lambda: torch.full((8,), -1.0)), "negative"),
        (moment("exp_avg", lambda: torch.zeros(8).to_sparse()), "not a dense tensor"),
        (moment("exp_avg", lambda: torch.zeros(8, dtype=torch.int64)), "torch.int64"),
        (moment("exp_avg", lambda: None), "not a dense tensor"),
        (moment("other", lambda: torch.zeros(8)), "other entries"),
        (lambda state, extra, optimizer: optimizer["state"].clear(), "other parameters"),
        (lambda state, extra, optimizer: extra.update(optimizer=None), "missing or of other parameters"),
        (lambda state, extra, optimizer: extra.update(batches=-1), "negative"),
        (lambda state, extra, optimizer: extra.update(seed="0"), "'seed'"),
        (lambda state, extra, optimizer: extra.pop("prepared"), "'prepared'"),
        (lambda state, extra, optimizer: state["model.bn1.weight"].fill_(float("inf")), "model.bn1.weight has values"),
    ],
)
def test_a_damaged_state_is_refused_before_anything_changes(change, words):
    adapter = TENT(make_network("image_bn"), preset="cifar10")
    adapter(X)
    before = flat_state(adapter.state_dict())
    with pytest.raises(StateError, match=words):
        adapter.load_state_dict(spoiled(change))
    assert same(before, flat_state(adapter.state_dict()))
    adapter(X)


def test_a_damaged_state_with_other_settings_leaves_those_as_they_were():
    network = make_network("image_gn")
    large = DSS(network, views=1)
    large(torch.rand(2, 3, 80, 80))
    state = copy.deepcopy(large.state_dict())
    state["_extra_state"]["optimizer"]["state"][0]["momentum_buffer"] = torch.zeros(1)
    adapter = DSS(network, views=1)
    before = flat_state(adapter.state_dict())
    with pytest.raises(StateError, match="momentum_buffer of parameter 0"):
        adapter.load_state_dict(state)
    assert adapter.preset == "cifar10+auto"
    assert same(before, flat_state(adapter.state_dict()))


def test_infinities_that_a_model_holds_on_purpose_are_loaded():
    network = make_network("image_bn")
    network.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    state = TENT(network).state_dict()
    TENT(network).load_state_dict(state)


def test_settings_of_the_optimiser_come_from_the_configuration():
    state = spoiled(lambda state, extra, optimizer: optimizer["param_groups"][0].update(lr=float("nan"), fused=False))
    adapter = TENT(make_network("image_bn"), preset="cifar10")
    adapter.load_state_dict(state)
    assert (adapter.optimizer.param_groups[0]["lr"], adapter.optimizer.param_groups[0]["fused"]) == (1e-3, True)
    assert adapter(X).isfinite().all()
