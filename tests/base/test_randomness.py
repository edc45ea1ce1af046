"""Randomness: every draw is a function of the seed and the batch number, and nothing outside changes."""

from __future__ import annotations

from contextlib import suppress

import torch

from ctta.base.randomness import Randomness, mix

CPU = torch.device("cpu")


def test_seeds_are_mixed_from_all_numbers_in_their_order():
    found = {mix(*numbers) for numbers in [(0, 0), (0, 1), (1, 0), (1, 1), (-1, 0), (0,), (2**63, 5)]}
    assert len(found) == 7
    assert all(0 <= seed < 2**63 for seed in found)
    assert mix(3, 4) == mix(3, 4)


def test_draws_depend_on_seed_and_batch_only():
    draws = {(seed, batch): Randomness(seed, batch, CPU).uniform(-2, 3, 1000) for seed in (0, 1) for batch in (0, 1)}
    torch.manual_seed(5)
    assert torch.equal(Randomness(1, 0, CPU).uniform(-2, 3, 1000), draws[1, 0])
    assert len({tuple(draw.tolist()) for draw in draws.values()}) == 4
    for draw in draws.values():
        assert draw.dtype == torch.float64
        assert -2 <= draw.min() < -1.9 < 2.9 < draw.max() < 3


def test_the_global_generator_follows_the_seed_inside_and_is_as_before_outside():
    before = torch.get_rng_state()
    with Randomness(0, 1, CPU).scoped():
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    with Randomness(0, 1, CPU).scoped():
        assert torch.equal(torch.rand(3), first)
    with Randomness(0, 2, CPU).scoped():
        assert not torch.equal(torch.rand(3), first)


def test_the_global_generator_of_mps_follows_the_seed_and_is_put_back(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: "before")
    monkeypatch.setattr(torch.mps, "manual_seed", lambda seed: calls.append(seed))
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state: calls.append(state))
    random = Randomness(0, 1, CPU)
    random.place = torch.device("mps")
    with suppress(KeyError), random.scoped():
        assert calls == [random.seed]
        raise KeyError
    assert calls == [random.seed, "before"]
