"""What the tests of benchmarks share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import methods


@pytest.fixture
def small(tmp_path) -> list[str]:
    """Arguments that make an experiment on CIFAR-10 small: two domains of two batches of noise, random weights."""
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "clean.npz",
        images=generator.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        labels=generator.integers(0, 10, 12),
    )
    torch.save(methods.random_model("cifar_resnet20").state_dict(), tmp_path / "weights.pt")
    changes = {
        "data.path": tmp_path / "clean.npz",
        "model.weights": tmp_path / "weights.pt",
        "data.domains": "[fog, contrast]",
        "data.first": 0,
        "data.images": 12,
        "data.batch": 6,
    }
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
