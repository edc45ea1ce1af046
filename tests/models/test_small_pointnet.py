"""The embedded cloud model: small, and as good as its file says."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from torch import Tensor, nn

import ctta
from ctta.data.corruptions import corrupt_clouds
from ctta.data.datasets.embedded_clouds import SOLIDS, solids
from ctta.models import embedded_cloud_model

ASSETS = Path(str(files("ctta") / "assets"))
WEIGHTS = ASSETS / "solids_pointnet.safetensors"


@pytest.fixture(scope="module")
def metadata() -> dict[str, str]:
    with safe_open(WEIGHTS, "pt") as file:
        return dict(file.metadata())


@pytest.fixture(scope="module")
def test_set() -> tuple[Tensor, Tensor]:
    clouds, labels = solids(240)
    return torch.from_numpy(clouds), torch.from_numpy(labels)


@torch.no_grad()
def error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    logits = torch.cat([model(part) for part in x.split(48)])
    return 100 * (logits.argmax(1) != y).double().mean().item()


def test_the_file_is_small_and_the_one_in_the_provenance() -> None:
    assert WEIGHTS.stat().st_size < 500_000
    assert hashlib.sha256(WEIGHTS.read_bytes()).hexdigest() in (ASSETS / "PROVENANCE.md").read_text()


def test_clean_error_is_as_recorded(metadata: dict[str, str], test_set: tuple[Tensor, Tensor]) -> None:
    model = embedded_cloud_model()
    assert model(test_set[0][:2]).shape == (2, len(SOLIDS))
    assert error(model, *test_set) == pytest.approx(float(metadata["test_error"]), abs=1.0)


def test_the_gate_follows_the_rule_on_other_solids(metadata: dict[str, str]) -> None:
    clouds, _ = solids(240, seed=2)
    gate = ctta.calibrate_gate(embedded_cloud_model(), torch.from_numpy(clouds).split(48))
    assert gate == pytest.approx(float(metadata["gate"]), abs=0.05)
    demo = yaml.safe_load((ASSETS / "demo_clouds.yaml").read_text())
    gates = {entry["augmentation_threshold"] for entry in demo["methods"] if isinstance(entry, dict)}
    assert gates == {float(metadata["gate"])}


def test_corruption_hurts_and_batch_statistics_help(test_set: tuple[Tensor, Tensor]) -> None:
    clouds, labels = test_set
    lidar = torch.from_numpy(corrupt_clouds(clouds.numpy(), "lidar", severity=5, seed=1))
    source = error(embedded_cloud_model(), lidar, labels)
    assert source > 20
    assert error(ctta.BNAdapt(embedded_cloud_model(), statistics="batch"), lidar, labels) < source - 5
