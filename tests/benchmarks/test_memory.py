"""The memory of DSS is the sum of its parts."""

from __future__ import annotations

import pytest
import torch

import ctta
from benchmarks import memory
from ctta.testing.networks import make_batch, make_network


@pytest.mark.parametrize("lanes", [1, 2])
def test_memory_of_dss_is_the_sum_of_its_parts(lanes):
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    result = memory.measure(
        network,
        x,
        augmentation_threshold=1.0,
        execution=ctta.Execution(views_per_pass=4 // lanes, parallel_passes=lanes),
    )
    parts = result["parts"]
    assert parts["source weights"] == parts["student"] == parts["teacher"] == 1
    values = sum(parameter.numel() for parameter in network.parameters())
    counts = len(list(network.parameters()))
    assert parts["optimiser state"] == pytest.approx((2 * values + counts) * 4 / memory.network_bytes(network))
    assert parts["state before the batch"] == pytest.approx(2 + parts["optimiser state"], rel=0.1)
    assert parts["gradients"] == 0
    assert result["alive"] == pytest.approx(result["held"], rel=0.01)
    assert 4 // lanes <= result["views_at_once"] <= 4, "at least those of one pass, at most those of all"
    assert result["views_in_a_pass"] * result["passes_at_once"] == 4


def test_counted_bytes_are_counted_once():
    x = torch.zeros(10, dtype=torch.float32)
    assert memory.tensor_bytes([x, x[2:], x.view(2, 5)]) == 40
    assert memory.tensor_bytes([x, x.clone()]) == 80


def test_sparse_tensors_elsewhere_do_not_matter():
    others = [torch.zeros(3, requires_grad=True), torch.eye(3).to_sparse().requires_grad_()]
    found = memory.alive()
    assert [any(one is other for one in found) for other in others] == [True, False]
    memory.tensor_bytes(found)
