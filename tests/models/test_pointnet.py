"""PointNet: public names and counts, the published formulation, laws of a set."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta import ConfigError, models
from ctta.experiments.experiment import Model
from ctta.models.pointnet import PointNet, TransformNet, distance_to_orthogonal

NAMES = ["pointnet", "pointnet_stn", "pointnet_vanilla", "small_pointnet"]


def clouds(n: int = 4, points: int = 64, seed: int = 0) -> Tensor:
    return torch.rand(n, points, 3, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def build(name: str) -> nn.Module:
    """With statistics and T-Nets that are not trivial."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = models.MODELS[name].build(6)
        for seed in range(3):
            model(clouds(seed=seed))
    return model


def layers_by_hand(inputs: int, *widths: int, bias: bool = True) -> int:
    """Weights of a chain of linear layers, each with bias and BatchNorm."""
    total = 0
    for width in widths:
        total += inputs * width + (width if bias else 0) + 2 * width
        inputs = width
    return total


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # Published as 3.5 M; without transforms 0.8 M, where the head has one layer more.
        ("pointnet", 3_471_473),
        ("pointnet_stn", 1_614_129),
        ("pointnet_vanilla", 696_168),
    ],
)
def test_parameters_by_hand(name: str, count: int) -> None:
    transform = {k: layers_by_hand(k, 64, 128, 1024, 512, 256) + 256 * k * k + k * k for k in (3, 64)}
    body = layers_by_hand(3, 64, 128, 1024) + layers_by_hand(1024, 512, 256) + 256 * 40 + 40
    by_hand = {
        "pointnet": transform[3] + transform[64] + body,
        "pointnet_stn": transform[3] + body,
        "pointnet_vanilla": layers_by_hand(3, 64, 64, 64, 128, 1024, 512, bias=False) + 512 * 40 + 40,
    }
    assert sum(parameter.numel() for parameter in models.MODELS[name].build().parameters()) == by_hand[name] == count


def test_names_are_the_public_ones() -> None:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = set()
    for net in ("feat.stn.", "feat.fstn."):
        expected |= {f"{net}{layer}.{part}" for layer in ("conv1", "conv2", "conv3") for part in norm[:2]}
        expected |= {f"{net}fc{i}.{part}" for i in (1, 2, 3) for part in norm[:2]}
        expected |= {f"{net}bn{i}.{part}" for i in range(1, 6) for part in norm}
    expected |= {f"feat.conv{i}.{part}" for i in (1, 2, 3) for part in norm[:2]}
    expected |= {f"feat.bn{i}.{part}" for i in (1, 2, 3) for part in norm}
    expected |= {f"fc{i}.{part}" for i in (1, 2, 3) for part in norm[:2]}
    expected |= {f"bn{i}.{part}" for i in (1, 2) for part in norm}
    assert set(models.MODELS["pointnet"].build().state_dict()) == expected
    without = {key for key in expected if ".fstn." not in key}
    assert set(models.MODELS["pointnet_stn"].build().state_dict()) == without
    vanilla = {f"conv{i}.weight" for i in range(1, 6)} | {f"bn{i}.{part}" for i in range(1, 7) for part in norm}
    vanilla |= {"linear1.weight", "linear2.weight", "linear2.bias"}
    assert set(models.MODELS["pointnet_vanilla"].build().state_dict()) == vanilla


def reference(model: PointNet, x: Tensor) -> Tensor:
    """Point by point in (N, P, C), with linear layers and explicit sums, from the state dict alone."""
    state = model.state_dict()

    def layer(x: Tensor, conv: str, norm: str) -> Tensor:
        weight = state[f"{conv}.weight"].flatten(1)
        y = torch.einsum("...c,oc->...o", x, weight) + state[f"{conv}.bias"]
        scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + 1e-5).sqrt()
        return (y - state[f"{norm}.running_mean"]) * scale + state[f"{norm}.bias"]

    def transform(x: Tensor, at: str, size: int) -> Tensor:
        y = x
        for i in (1, 2, 3):
            y = F.relu(layer(y, f"{at}.conv{i}", f"{at}.bn{i}"))
        y = y.max(1).values
        y = F.relu(layer(y, f"{at}.fc1", f"{at}.bn4"))
        y = F.relu(layer(y, f"{at}.fc2", f"{at}.bn5"))
        y = y @ state[f"{at}.fc3.weight"].T + state[f"{at}.fc3.bias"]
        return torch.einsum("npc,ncd->npd", x, y.view(-1, size, size) + torch.eye(size))

    x = F.relu(layer(transform(x, "feat.stn", 3), "feat.conv1", "feat.bn1"))
    x = F.relu(layer(transform(x, "feat.fstn", 64), "feat.conv2", "feat.bn2"))
    x = layer(x, "feat.conv3", "feat.bn3").max(1).values
    x = F.relu(layer(x, "fc1", "bn1"))
    x = F.relu(layer(x, "fc2", "bn2"))
    return x @ state["fc3.weight"].T + state["fc3.bias"]


def test_equals_the_plain_formulation() -> None:
    model = build("pointnet").eval()
    assert isinstance(model, PointNet)
    expected = reference(model, clouds(seed=9))
    assert expected.std() > 0.05
    torch.testing.assert_close(model(clouds(seed=9)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [3, 64])
def test_a_transform_starts_near_the_identity(size: int) -> None:
    net = TransformNet(size).eval()
    nn.init.zeros_(net.fc3.weight)
    nn.init.zeros_(net.fc3.bias)
    assert torch.equal(net(torch.rand(2, size, 5)), torch.eye(size).expand(2, size, size))


@pytest.mark.parametrize("name", NAMES)
def test_order_and_copies_of_points_do_not_matter(name: str) -> None:
    model, x = build(name).eval(), clouds(seed=5)
    expected = model(x)
    assert expected.shape == (4, 6)
    torch.testing.assert_close(model(x[:, torch.randperm(64)]), expected)
    torch.testing.assert_close(model(torch.cat([x, x[:, :9]], 1)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_come_back(name: str) -> None:
    model = build(name).train()
    model(clouds()).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", [*NAMES, "dgcnn"])
@pytest.mark.parametrize("method", ["bn_adapt", "tent", "test_aug", "cotta", "dss"])
def test_methods_run_on_clouds_and_find_the_classes(name: str, method: str) -> None:
    fields = {"views": 2} if method in ("test_aug", "cotta", "dss") else {}
    adapter = ctta.create(method, build(name), **fields)
    assert adapter.classes == 6
    for seed in range(2):
        assert adapter(clouds(seed=seed)).isfinite().all()
    assert adapter.preset == "clouds+auto"


def test_regulariser_by_hand() -> None:
    # A A^T of [[2, 1], [0, 1]] is [[5, 1], [1, 1]]: I less that is [[-4, -1], [-1, 0]], 18 in squares. Rotations: 0.
    matrices = torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[0.6, 0.8], [-0.8, 0.6]]])
    assert distance_to_orthogonal(matrices).item() == pytest.approx(9)


def test_regularized_gives_the_logits_and_a_thousandth_of_the_distance() -> None:
    model = build("pointnet").eval()
    assert isinstance(model, PointNet)
    last = model.feat.fstn.fc3
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    with torch.no_grad():
        last.bias[0] = 1.0  # A = I but for 2 in its corner: I - A A^T has one entry, 1 - 4
    logits, penalty = model.regularized(clouds())
    assert torch.equal(logits, model(clouds()))
    assert penalty.item() == pytest.approx(0.009)
    assert models.MODELS["pointnet_stn"].build(6).regularized(clouds())[1] == 0


@pytest.mark.parametrize("name", ["pointnet", "embedded_clouds"])
def test_clouds_have_no_normalisation(name: str) -> None:
    assert "clouds, which have no mean and std" in Model(name=name, mean=(0.5,), std=(0.5,)).problems()[0]


def test_load_takes_no_normalisation_for_clouds() -> None:
    with pytest.raises(ConfigError, match="'pointnet' takes point clouds"):
        models.load("pointnet", weights="none.pth", mean=(0.5,), std=(0.5,))


@pytest.mark.parametrize("name", ["pointnet", "dgcnn"])
@pytest.mark.parametrize("form", ["yanx27", "modelnet40_c", "parallel"])
def test_public_files_load(name: str, form: str, tmp_path) -> None:
    """As yanx27, ModelNet40-C and a parallel WangYueFt save them."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        trained = models.MODELS[name].build().eval()
    state = trained.state_dict()
    content = {
        "yanx27": {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": {}},
        "modelnet40_c": {"epoch": 3, "model_state": {f"model.{key}": value for key, value in state.items()}},
        "parallel": {f"module.{key}": value for key, value in state.items()},
    }[form]
    torch.save(content, tmp_path / "weights.pth")
    loaded = models.load(name, weights=tmp_path / "weights.pth")
    assert torch.equal(loaded(clouds()), trained(clouds()))
