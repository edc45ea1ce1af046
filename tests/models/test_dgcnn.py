"""DGCNN against the plain formulation, which holds every edge; neighbours against brute force; laws of a set."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta import models
from ctta.models.dgcnn import DGCNN, edge_moments, edge_terms, largest_places, neighbours
from ctta.training.learner import train
from ctta.training.recipe import make


class PlainDGCNN(DGCNN):
    """The same weights, as the paper writes it: all pairwise distances, all edges, one convolution over them."""

    def forward(self, x: Tensor) -> Tensor:
        points, seen = x.mT, []
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            values = points.detach().mT.double()
            near = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
            near = near.topk(min(self.k, x.shape[1]), largest=False).indices
            other = torch.stack([cloud[:, index] for cloud, index in zip(points, near, strict=True)])  # (N, C, P, k)
            own = points[..., None].expand_as(other)
            points = conv(torch.cat([other - own, own], 1)).amax(3)
            seen.append(points)
        joined = self.conv5(torch.cat(seen, 1))
        x = torch.cat([joined.amax(2), joined.mean(2)], 1)
        x = self.dp1(F.leaky_relu(self.bn6(self.linear1(x)), 0.2))
        x = self.dp2(F.leaky_relu(self.bn7(self.linear2(x)), 0.2))
        return self.linear3(x)


def clouds(n: int = 4, points: int = 48, seed: int = 0) -> Tensor:
    return torch.rand(n, points, 3, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def pair(dropout: float = 0.0, k: int = 8) -> tuple[DGCNN, PlainDGCNN]:
    """Ours and the plain one with equal weights; norm layers have slopes of both signs and statistics of their own."""
    generator = torch.Generator().manual_seed(3)
    ours, plain = DGCNN(7, k, dropout), PlainDGCNN(7, k, dropout)
    with torch.no_grad():
        for layer in ours.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
                layer.bias.copy_(torch.randn(layer.bias.shape, generator=generator) / 3)
                layer.running_mean.copy_(torch.randn(layer.bias.shape, generator=generator) / 5)
                layer.running_var.copy_(torch.rand(layer.bias.shape, generator=generator) + 0.5)
    plain.load_state_dict(ours.state_dict())
    return ours, plain


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("training", [False, True])
def test_equals_the_plain_formulation(training: bool) -> None:
    ours, plain = pair()
    ours.train(training)
    plain.train(training)
    found, expected = ours(clouds()), plain(clouds())
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_gradients_equal_the_plain_formulation_s() -> None:
    # In double precision, so that no two neighbours change places by rounding.
    ours, plain = (model.double().train() for model in pair())
    target = torch.arange(4) % 7
    for model in (ours, plain):
        F.cross_entropy(model(clouds().double()), target).backward()
    for (name, left), right in zip(ours.named_parameters(), plain.parameters(), strict=True):
        assert right.grad.abs().max() > 0, name
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-6, atol=1e-9, msg=name)


def test_training_follows_the_same_statistics() -> None:
    ours, plain = (model.train() for model in pair())
    with torch.no_grad():
        for seed in range(3):
            ours(clouds(seed=seed))
            plain(clouds(seed=seed))
    for (name, left), right in zip(ours.named_buffers(), plain.buffers(), strict=True):
        # The unbiased variance has 32 N = 128 in its factor, not N P k = 1536: .7 % on this small batch.
        tolerance = 8e-3 if name.endswith("running_var") and name[2] in "1234" else 1e-5
        torch.testing.assert_close(left, right, rtol=tolerance, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("source", {}),
        ("bn_adapt", {}),
        ("bn_adapt", {"batch_weight": 0.4}),
        ("bn_adapt", {"statistics": "running", "batch_weight": 0.2}),
        ("tent", {"lr": 1e-2}),
        ("tent", {"lr": 1e-2, "statistics": "running"}),
        ("cotta", {"views": 2, "augmentation_threshold": 1.0}),
        ("dss", {"views": 2, "augmentation_threshold": 1.0}),
    ],
)
def test_methods_do_the_same_to_both(method: str, fields: dict[str, object]) -> None:
    ours, plain = (ctta.create(method, model.double(), preset="clouds", **fields) for model in pair())
    for seed in range(3):
        x = clouds(seed=seed).double()
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-6, atol=1e-7)


def test_neighbours_equal_brute_force() -> None:
    x = torch.randn(3, 70, 5, dtype=torch.float64) + 100
    found = neighbours(x.float(), 9).sort().values
    distances = (x.float().double()[:, :, None] - x.float().double()[:, None]).square().sum(3)
    assert torch.equal(found, distances.argsort(2)[:, :, :9].sort().values)


def test_neighbours_are_found_in_full_precision_under_autocast() -> None:
    x = clouds(2, 200)
    with torch.autocast("cpu", torch.bfloat16):
        found = neighbours(x, 9)
    assert torch.equal(found.sort().values, neighbours(x, 9).sort().values)


def test_blocks_do_not_change_neighbours() -> None:
    x = clouds(3, 50)
    by_eight_rows = neighbours(x, 6, block=400)
    assert torch.equal(by_eight_rows.sort().values, neighbours(x, 6).sort().values)


@pytest.mark.parametrize("points", [3, 64, 100, 200, 203])
def test_the_largest_of_a_row_are_found_in_groups(points: int) -> None:
    values = torch.randn(30, points, generator=torch.Generator().manual_seed(points))
    expected = values.argsort(1, descending=True)[:, :9]
    assert torch.equal(largest_places(values, 9).sort().values, expected.sort().values)


def test_a_line_of_points_by_hand() -> None:
    x = torch.tensor([0.0, 1.0, 3.0, 7.0])[:, None].expand(-1, 3)[None]
    assert neighbours(x, 2).sort().values.tolist() == [[[0, 1], [0, 1], [1, 2], [2, 3]]]
    assert neighbours(x, 20).shape == (1, 4, 4)


def test_edge_terms_and_moments_by_hand() -> None:
    # W [x_j - x_i, x_i] = 2 (x_j - x_i) + 5 x_i = 2 x_j + 3 x_i.
    x = torch.tensor([[[1.0], [2.0], [4.0]]])
    u, v = edge_terms(x, torch.tensor([2.0, 5.0]).view(1, 2, 1, 1))
    assert u.flatten().tolist() == [2.0, 4.0, 8.0]
    assert v.flatten().tolist() == [3.0, 6.0, 12.0]
    # Neighbours (0, 1), (1, 0), (2, 1): edges 5 7, 10 8, 20 16, mean 11, variance (36+16+1+9+81+25)/6 = 28.
    mean, deviation = edge_moments(u, v, torch.tensor([[[0, 1], [1, 0], [2, 1]]]))
    assert mean.item() == pytest.approx(11)
    assert deviation.item() ** 2 == pytest.approx(28)


def test_order_of_points_does_not_matter() -> None:
    model, x = pair()[0].eval(), clouds()
    mixed = x[:, torch.randperm(x.shape[1])]
    torch.testing.assert_close(model(mixed), model(x), rtol=1e-4, atol=1e-5)


def test_equal_points_and_dead_channels_stay_finite() -> None:
    model = pair()[0].train()
    nn.init.zeros_(model.get_parameter("conv2.0.weight"))
    x = clouds()
    x[:, 10:] = x[:, :1]
    logits = model(x)
    logits.logsumexp(1).sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_state_dict_is_the_authors() -> None:
    model = DGCNN()
    state = model.state_dict()
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_809_576  # "1.8 M" where it is published
    expected = {
        "conv1.0.weight": (64, 6, 1, 1),
        "conv2.0.weight": (64, 128, 1, 1),
        "conv3.0.weight": (128, 128, 1, 1),
        "conv4.0.weight": (256, 256, 1, 1),
        "conv5.0.weight": (1024, 512, 1),
        "linear1.weight": (512, 2048),
        "linear2.weight": (256, 512),
        "linear2.bias": (256,),
        "linear3.weight": (40, 256),
        "linear3.bias": (40,),
    }
    norms = {"bn1": 64, "bn2": 64, "bn3": 128, "bn4": 256, "bn5": 1024, "bn6": 512, "bn7": 256}
    names = {**norms, **{f"conv{number}.1": norms[f"bn{number}"] for number in range(1, 6)}}
    for name, width in names.items():
        expected |= {f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}
        expected |= {f"{name}.num_batches_tracked": ()}
    assert {key: tuple(value.shape) for key, value in state.items()} == expected
    assert state["bn3.weight"].data_ptr() == state["conv3.1.weight"].data_ptr()


def test_copies_share_nothing_with_the_original() -> None:
    model = DGCNN(5)
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin.bn1.weight)
    assert twin.get_parameter("conv1.1.weight").abs().sum() == 0
    assert model.get_parameter("conv1.1.weight").abs().sum() > 0


@pytest.mark.parametrize("recipe", [{}, {"points": 24, "precision": "autocast"}], ids=["plain", "narrow"])
def test_trained_saved_loaded_and_adapted(tmp_path, recipe: dict[str, object]) -> None:
    """A module with two names has its tensors twice; safetensors must not mind."""
    points = clouds(16, 32).numpy()
    np.savez(tmp_path / "train.npz", points=points, labels=np.arange(16) % 3, classes=np.array(["a", "b", "c"]))
    spec = {"data": {"dataset": "cloud_arrays", "path": str(tmp_path / "train.npz")}, "model": {"name": "dgcnn"}}
    out = tmp_path / "dgcnn.safetensors"
    for _ in train(make({**spec, "train": {"epochs": 1, "batch": 8, "lr": 0.01, **recipe}}), out):
        pass
    adapter = ctta.BNAdapt(models.load("dgcnn", weights=out))
    assert adapter.classes == 3
    assert adapter(torch.from_numpy(points)).shape == (16, 3)
