"""Adapters of method runs, and their source data."""

from __future__ import annotations

import pytest
import torch

import tiny
from ctta.data.dataset import Data
from ctta.experiments import experiment as experiments
from ctta.experiments.build import make_adapter, source_batches


@pytest.mark.parametrize("detects", [False, True])
def test_an_adapter_has_the_settings_of_its_run(detects):
    made = experiments.make({"methods": [{"method": "dss", "views": 3, "preset": "cifar100"}], "seeds": [7]})
    (cell,) = made.cells((4, 3, 32, 32))
    adapter = make_adapter(cell, tiny.network(), detects=detects)
    assert adapter.config.asdict() == cell.config
    assert adapter.config.views == 3
    assert (adapter.drift is not None) == detects
    first, again = (make_adapter(cell, tiny.network()).step(tiny_batch()).logits for _ in range(2))
    assert torch.equal(first, again)


def tiny_batch():
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_source_batches_are_clean_samples_with_labels():
    (cell,) = experiments.make({"methods": ["tent"]}).cells((4, 3, 32, 32))
    adapter = make_adapter(cell, tiny.network())
    batches = list(source_batches(Data(domains="clean", severity=0, first=8000, images=5, batch=2), adapter))
    assert [tuple(x.shape) for x, _ in batches] == [(2, 3, 32, 32), (2, 3, 32, 32), (1, 3, 32, 32)]
    assert [len(y) for _, y in batches] == [2, 2, 1]
