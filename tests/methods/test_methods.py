"""What holds for every method: it is listed, honours the contract on every network, and survives a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ctta
from ctta import METHODS, Execution
from ctta.testing import CHECKS, NETWORKS, Case, contract
from ctta.testing.contract import LIVELY, predictions, same

# What depends on the layers of a network as much as on the method.
ON_EVERY_NETWORK = (
    contract.check_predictions,
    contract.check_reset_replays,
    contract.check_restore_source,
    contract.check_save_and_load,
    contract.check_bad_input,
    contract.check_one_sample,
    contract.check_other_device,
)


def in_turn(methods, networks, always=(), checks=CHECKS):
    """Each check with each method on one of the networks, so that each check and each method meets all of them."""
    return [
        pytest.param(check, method, network, id=f"{check.__name__}-{method}-{network}")
        for i, check in enumerate(checks)
        for j, method in enumerate(methods)
        for k, network in enumerate(networks)
        if check in always or (i + j) % len(networks) == k
    ]


FIRST, *OTHERS = NETWORKS


@pytest.mark.parametrize(
    ("check", "method", "network"), in_turn(METHODS, [FIRST]) + in_turn(METHODS, OTHERS, always=ON_EVERY_NETWORK)
)
def test_contract(check, method, network):
    check(Case(METHODS[method], network))


@pytest.mark.parametrize("method", ["test_aug", "cotta", "dss"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract_with_parallel_passes(check, method):
    check(Case(METHODS[method], "image_bn", {"execution": Execution(parallel_passes=2)}))


HAVE_STATISTICS = [name for name in METHODS if "statistics" in METHODS[name].config_type.fields()]


@pytest.mark.parametrize(("check", "method", "network"), in_turn(HAVE_STATISTICS, ["image_bn", "pointnet_bn"]))
def test_contract_with_auto_statistics(check, method, network):
    check(Case(METHODS[method], network, {"statistics": "auto"}))


STATE_AND_SIZE = (contract.check_reset_replays, contract.check_save_and_load, contract.check_one_sample)


@pytest.mark.parametrize("kind", ["robust", "instance"])
@pytest.mark.parametrize(
    ("check", "method", "network"), in_turn(HAVE_STATISTICS, ["image_bn", "pointnet_bn"], checks=STATE_AND_SIZE)
)
def test_contract_with_statistics_of_other_methods(check, method, network, kind):
    check(Case(METHODS[method], network, {"statistics": kind}))


def test_lively_settings_are_settings_of_methods():
    known = {name for method in METHODS.values() for name in method.config_type.fields()}
    assert set(LIVELY) <= known, "a setting that no method has makes nothing lively"


RESUME = """
import sys, torch
from ctta import METHODS
from ctta.testing import Case
from ctta.testing.contract import predictions

folder = sys.argv[1]
for method in METHODS:
    case = Case(METHODS[method], "image_bn")
    adapter = case.adapter()
    adapter.load_state_dict(torch.load(f"{folder}/{method}.pt", weights_only=True))
    torch.save(predictions(adapter, case.stream()[3:]), f"{folder}/{method}-rest.pt")
"""


def test_a_new_process_continues_exactly(tmp_path):
    expected = {}
    for method in METHODS:
        case = Case(METHODS[method], "image_bn")
        adapter = case.adapter(seed=11)
        predictions(adapter, case.stream()[:3])
        torch.save(adapter.state_dict(), tmp_path / f"{method}.pt")
        expected[method] = predictions(adapter, case.stream()[3:])
    other_hashes = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    subprocess.run([sys.executable, "-c", RESUME, str(tmp_path)], check=True, env=other_hashes)
    for method, logits in expected.items():
        assert same(logits, torch.load(tmp_path / f"{method}-rest.pt", weights_only=True)), method


def test_every_method_file_is_listed_and_tested():
    files = {path.stem for path in Path(ctta.methods.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(METHODS)
    assert all(method.name == name for name, method in METHODS.items())
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert files == tests - {"methods", "traits", "own_methods"}


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].traits.episodic])
def test_predict_gives_the_prediction_of_a_step(method):
    """Before the step, or after it if the method predicts with the updated weights; without averaged augmentations."""
    case = Case(METHODS[method], "image_bn")
    none = {"views": 0} if method == "sift" else {"augmentation_threshold": 0.0}
    adapter = case.adapter(**{name: value for name, value in none.items() if case.has(name)})
    x, other = case.stream(2)
    adapter(other)
    before = adapter.predict(x)
    logits = adapter(x)
    after = METHODS[method].traits.answers == "after"
    torch.testing.assert_close(logits, adapter.predict(x) if after else before)


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_is_described_in_a_sentence(method):
    for name, _, _, sentence in METHODS[method].config_type.describe():
        assert sentence.endswith((".", "in the paper)")), (name, sentence)


@pytest.mark.parametrize("method", METHODS)
def test_autocast_gives_finite_predictions(method):
    case = Case(METHODS[method], "image_bn")
    with torch.autocast("cpu", torch.bfloat16):
        adapter = case.adapter()
        assert all(adapter(x).isfinite().all() for x in case.stream(3))


@pytest.mark.parametrize("method", METHODS)
def test_deterministic_algorithms_and_another_default_device_change_nothing(method):
    case = Case(METHODS[method], "image_bn")
    expected, adapter, stream = predictions(case.adapter(), case.stream(3)), case.adapter(), case.stream(3)
    torch.use_deterministic_algorithms(True)
    torch.set_default_device("meta")
    try:
        assert same(predictions(adapter, stream), expected)
    finally:
        torch.set_default_device("cpu")
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
