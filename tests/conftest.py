"""Set-up for all tests."""

from __future__ import annotations

import gc
import os

import pytest
import torch

# The networks here are tiny: a second thread would wait longer than it works, above all on a shared machine.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

pytest_plugins = ["attempts", "own"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker is left alone with it in the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Every method run collects garbage, and thousands of tests and what they import are none."""
    gc.freeze()
