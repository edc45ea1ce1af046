"""All methods, all networks, all checks; and save/load across processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from contract import CHECKS, Case, answers
from ctta import METHODS, Execution
from networks import NETWORKS


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check, method, network):
    check(Case(METHODS[method], network))


@pytest.mark.parametrize("method", ["test_aug", "cotta", "dss"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract_with_views_side_by_side(check, method, monkeypatch):
    monkeypatch.setattr(Execution, "passes_at_once", lambda execution, x: 2)  # tests run on one thread
    check(Case(METHODS[method], "image_bn"))


RESUME = """
import sys, torch
from contract import Case, answers
from networks import NETWORKS
from ctta import METHODS

folder = sys.argv[1]
for method in METHODS:
    for network in NETWORKS:
        case = Case(METHODS[method], network)
        adapter = case.adapter()
        adapter.load_state_dict(torch.load(f"{folder}/{method}-{network}.pt", weights_only=True))
        torch.save(answers(adapter, case.stream()[3:]), f"{folder}/{method}-{network}-rest.pt")
"""


def test_a_new_process_goes_on_exactly(tmp_path):
    expected = {}
    for method in METHODS:
        for network in NETWORKS:
            case = Case(METHODS[method], network)
            adapter = case.adapter(seed=11)
            answers(adapter, case.stream()[:3])
            torch.save(adapter.state_dict(), tmp_path / f"{method}-{network}.pt")
            expected[method, network] = answers(adapter, case.stream()[3:])
    subprocess.run([sys.executable, "-c", RESUME, str(tmp_path)], check=True, cwd=Path(__file__).parents[1])
    for (method, network), logits in expected.items():
        rest = torch.load(tmp_path / f"{method}-{network}-rest.pt", weights_only=True)
        assert all(torch.equal(a, b) for a, b in zip(logits, rest, strict=True)), (method, network)


def test_every_method_file_is_listed():
    files = {path.stem for path in (Path(__file__).parents[2] / "src/ctta/methods").glob("*.py")} - {"__init__"}
    assert files == set(METHODS)
    assert all(method.name == name for name, method in METHODS.items())
