"""The embedded model: its form, and that the shipped weights are as good as they say."""

import hashlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

from ctta.models.small_resnet import SmallResNet

ASSETS = Path(str(files("ctta") / "assets"))
WEIGHTS = ASSETS / "fashion_resnet.safetensors"
TEST_SET = ASSETS / "fashion_mnist_test.npz"


@pytest.fixture(scope="module")
def metadata() -> dict[str, str]:
    with safe_open(WEIGHTS, "pt") as file:
        return dict(file.metadata())


@pytest.fixture(scope="module")
def model() -> SmallResNet:
    with safe_open(WEIGHTS, "pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    model = SmallResNet()
    model.load_state_dict(state, strict=True)
    return model.eval()


@pytest.fixture(scope="module")
def first_2000() -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(TEST_SET) as data:
        images, labels = torch.tensor(data["images"][:2000]), torch.tensor(data["labels"][:2000])
    return F.pad(images.float() / 255, [2] * 4)[:, None].expand(-1, 3, -1, -1), labels.long()


@torch.no_grad()
def error(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Percent, in batches of 200."""
    logits = torch.cat([model(part) for part in x.split(200)])
    return 100 * (logits.argmax(1) != y).double().mean().item()


@pytest.mark.parametrize("num_classes", [10, 7])
def test_shapes(num_classes: int) -> None:
    assert SmallResNet(num_classes)(torch.rand(4, 3, 32, 32)).shape == (4, num_classes)


def test_normalisation_layers_are_batchnorm_and_nothing_drops_out() -> None:
    kinds = {type(module) for module in SmallResNet().modules()}
    assert nn.BatchNorm2d in kinds
    assert not any("Dropout" in kind.__name__ for kind in kinds)


def test_files_are_small() -> None:
    assert WEIGHTS.stat().st_size < 2_000_000
    assert TEST_SET.stat().st_size < 4_500_000


def test_files_are_the_ones_in_the_provenance() -> None:
    provenance = (ASSETS / "PROVENANCE.md").read_text()
    for path in (WEIGHTS, TEST_SET):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in provenance


def test_mean_and_std_travel_with_the_weights(model: SmallResNet) -> None:
    state = model.state_dict()
    assert {"mean", "std"} <= set(state)
    assert 0.1 < state["mean"].min() <= state["mean"].max() < 0.4
    assert 0.2 < state["std"].min() <= state["std"].max() < 0.5


def test_normalisation_is_inside() -> None:
    model = SmallResNet().eval()
    x = torch.rand(2, 3, 32, 32)
    expected = model((x - 0.2) / 0.3)
    model.mean.fill_(0.2)
    model.std.fill_(0.3)
    torch.testing.assert_close(model(x), expected)


def test_clean_error_is_as_recorded(
    model: SmallResNet, metadata: dict[str, str], first_2000: tuple[torch.Tensor, torch.Tensor]
) -> None:
    measured = error(model, *first_2000)
    assert measured == pytest.approx(float(metadata["test_error_first_2000"]), abs=0.5)
    assert measured <= 7.5
    assert float(metadata["test_error"]) <= 7.0


def test_corruption_hurts_and_batch_statistics_help(
    model: SmallResNet, first_2000: tuple[torch.Tensor, torch.Tensor]
) -> None:
    x, y = first_2000
    means = x.mean((2, 3), keepdim=True)
    faint = means + 0.15 * (x - means)
    by_batch = SmallResNet()
    by_batch.load_state_dict(model.state_dict())
    source = error(model, faint, y)
    assert source > 25
    assert error(by_batch.train(), faint, y) < source - 10
