"""How augmented views are arranged: by their size, evenly, and only if they are asked for."""

from __future__ import annotations

import pytest
import torch

from ctta import ConfigError, Execution
from ctta.core.execution import FAST, PARALLEL_CPU, PASS_CPU

SMALL, LARGE = torch.empty(2, 3, 32, 32), torch.empty(200, 3, 32, 32)


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_by_default_one_view_at_a_time():
    assert Execution().arrange(SMALL, 32) == (1, 1)


@pytest.mark.usefixtures("four_threads")
def test_views_per_pass_go_by_size():
    assert FAST.views_at_once(LARGE) == 1
    assert FAST.views_at_once(SMALL) == PASS_CPU // 6144 // 4
    assert Execution(views_per_pass="auto").views_at_once(SMALL) == PASS_CPU // 6144
    assert Execution(views_per_pass=5).views_at_once(LARGE) == 5


@pytest.mark.usefixtures("four_threads")
def test_parallel_passes_go_by_size_and_threads():
    assert FAST.passes_at_once(SMALL) == 4
    assert FAST.passes_at_once(torch.empty(1 + PARALLEL_CPU // 2)) == 1
    assert FAST.passes_at_once(torch.empty(2, 3, 32, 32, device="meta")) == 1
    assert Execution(parallel_passes=5).passes_at_once(SMALL) == 5
    with torch.autocast("cpu", torch.bfloat16):
        assert Execution(parallel_passes=2).passes_at_once(SMALL) == 1


def test_chunks_are_even():
    x = torch.empty(4, 3, 32, 32)
    assert Execution(views_per_pass=10, parallel_passes=2).arrange(x, 32) == (8, 2), "not ten, ten, ten and two"
    assert Execution(views_per_pass=10, parallel_passes=2).arrange(x, 1) == (1, 1)
    assert Execution(views_per_pass=3).arrange(x, 7) == (3, 1)
    assert Execution(compile=True, parallel_passes="auto", views_per_pass="auto").arrange(x, 32) == (1, 1)


def test_former_words_are_named():
    with pytest.raises(ConfigError, match="'chunk' of Execution is now called 'views_per_pass'"):
        Execution.make({"chunk": 4})
    with pytest.raises(ConfigError, match="'lanes' of Execution is now called 'parallel_passes'"):
        Execution.make({"lanes": 2})
