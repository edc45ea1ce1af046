"""Streams that take turns in one adapter: as if each had an adapter of its own."""

from __future__ import annotations

import pytest
import torch

import ctta
from ctta.core.guard_state import GuardState, Snapshot
from ctta.core.settings import SampleShape
from ctta.methods import METHODS
from ctta.models.load import embedded_model
from ctta.serving.stream import bytes_of
from tiny import network

FREE = [name for name, kind in METHODS.items() if kind.traits.source == "none"]
SHAPED = [name for name in FREE if issubclass(METHODS[name].config_type, SampleShape)]


def batches(seed: int, count: int = 4) -> torch.Tensor:
    return torch.rand(count, 8, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def make(name: str, **settings) -> ctta.Guard:
    return ctta.Guard(ctta.create(name, network(), preset="cifar10", boundaries="detected", **settings))


def assert_apart(make_one) -> None:
    alone = {seed: [guard(x) for x in batches(seed)] for seed, guard in ((1, make_one()), (2, make_one()))}
    shared = make_one()
    states = dict.fromkeys(alone, shared.stream_state())
    for i in range(4):
        for seed in alone:
            shared.set_stream_state(states[seed])
            assert torch.equal(shared(batches(seed)[i]), alone[seed][i])
            states[seed] = shared.stream_state()


@pytest.mark.parametrize("name", SHAPED)
def test_what_has_the_shape_of_samples_is_not_shared(name):
    with pytest.raises(ctta.StateError, match="cannot share it"):
        make(name).stream_state()


@pytest.mark.parametrize("name", [name for name in FREE if name not in SHAPED])
def test_streams_in_one_adapter_do_not_know_each_other(name):
    assert_apart(lambda: make(name))


@pytest.mark.parametrize("statistics", ["running", "auto", "mixed"])
def test_with_all_kinds_of_statistics(statistics):
    assert_apart(lambda: make("tent", statistics=statistics))


def test_without_a_guard():
    assert_apart(lambda: make("tent").adapter)


@pytest.mark.parametrize("name", ["tent", "eta", "roid", "rdumb"])
def test_the_state_of_norm_parameters_is_small(name):
    model = embedded_model()
    guard = ctta.Guard(ctta.create(name, model, preset="cifar10"))
    for x in torch.rand(3, 4, 3, 32, 32):
        guard(x)
    guard.roll_back()  # to the source, which must not make it large
    assert 0 < bytes_of(guard.stream_state()) < 0.05 * bytes_of(model.state_dict())


def test_a_damaged_state_is_refused():
    guard = make("tent")
    guard(batches(0)[0])
    state = guard.stream_state()
    guard.check_stream_state(state)
    name = next(name for name, value in state["adapter"]["tensors"].items() if value.dim())
    for planted in (
        {**state, "snapshots": 5},
        {**state, "adapter": {**state["adapter"], "batches": -1}},
        {**state, "adapter": {**state["adapter"], "moments": []}},
        {**state, "adapter": {**state["adapter"], "tensors": {}}},
        {**state, "adapter": {**state["adapter"], "tensors": {**state["adapter"]["tensors"], name: torch.zeros(2)}}},
        {**state, "adapter": {**state["adapter"], "tensors": {**state["adapter"]["tensors"], "more": torch.zeros(2)}}},
        {**state, "adapter": {}},
    ):
        with pytest.raises(ctta.StateError):
            guard.check_stream_state(planted)


def test_a_roll_back_that_somebody_asks_for():
    guard = make("tent", lr=0.01)
    start = guard.adapter.predict(batches(0)[0])
    for x in batches(0):
        guard(x)
    assert not torch.equal(guard.adapter.predict(batches(0)[0]), start)
    guard.roll_back()
    assert torch.equal(guard.adapter.predict(batches(0)[0]), start)
    assert guard.state.trial > 0
    assert [event.kind for event in guard.events] == ["roll-back"]
    assert "the source" in guard.events[0].words


def test_a_roll_back_goes_to_the_last_snapshot_and_again_to_the_one_before():
    guard = make("tent", lr=0.01)
    learned = []
    for x in batches(0):
        guard(x)
        learned.append(guard.adapter.learned())
    guard.snapshots = [Snapshot(i, one) for i, one in enumerate(learned[:2])]
    for wanted in (learned[1], learned[0]):
        guard.roll_back()
        found = guard.adapter.learned()
        assert all(torch.equal(found[name], value) for name, value in wanted.items())


def test_resume_begins_again_on_trial():
    guard = make("tent")
    guard(batches(0)[0])
    guard.state = GuardState(frozen=True)
    before = guard.adapter.batches
    guard(batches(0)[0])
    assert guard.adapter.batches == before
    guard.resume()
    guard(batches(0)[0])
    assert guard.adapter.batches == before + 1
    assert guard.state.trial > 0
