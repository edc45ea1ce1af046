"""Statistics of BatchNorm layers: batch, mixed, running, robust, of instances, and those of training."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from ctta import TENT, BNAdapt
from ctta.core import statistics as norms
from ctta.testing.networks import make_batch, make_network, make_stream

X = make_batch("image_bn", 8, 0)


def statistics(network):
    return [buffer.clone() for name, buffer in network.named_buffers() if "running" in name or name.endswith("tracked")]


@pytest.mark.parametrize("kind", ["batch", "mixed", "running", "robust", "instance", "auto"])
def test_the_source_s_own_statistics_are_never_lost(kind):
    adapter = TENT(make_network("image_bn"), statistics=kind, batch_weight=0.5)
    before = statistics(adapter.model)
    for x in make_stream("image_bn"):
        adapter(x)
    assert all(torch.equal(a, b) for a, b in zip(before, statistics(adapter.model), strict=True))


def test_running_statistics_start_at_the_source_and_follow_the_stream():
    network = make_network("image_bn")
    adapter = BNAdapt(network, statistics="running", batch_weight=0.25)
    with torch.no_grad():
        features = network.conv1(X)
    mean, variance = features.mean((0, 2, 3)), features.var((0, 2, 3), correction=0)
    expected_mean = 0.75 * network.bn1.running_mean + 0.25 * mean
    expected_var = 0.75 * network.bn1.running_var + 0.25 * variance
    adapter(X)
    layer = adapter.source_model.bn1
    torch.testing.assert_close(layer.stream_mean, expected_mean, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(layer.stream_var, expected_var, atol=1e-6, rtol=1e-5)
    for _ in range(200):
        adapter(X)
    torch.testing.assert_close(layer.stream_mean, mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(adapter(X), BNAdapt(network, preset="paper")(X), atol=1e-3, rtol=1e-3)
    adapter.reset()
    assert torch.equal(layer.stream_mean, network.bn1.running_mean)


def test_running_statistics_make_single_images_work():
    """Image by image, the answers come close to those with the statistics of the whole stream."""
    network = make_network("image_bn")
    images = torch.cat([make_batch("image_bn", 64, seed) * 0.5 for seed in range(8)])
    whole = BNAdapt(network, preset="paper")(images)
    running, batch = BNAdapt(network, statistics="running", batch_weight=0.05), BNAdapt(network, preset="paper")
    one_by_one = torch.cat([running(x) for x in images.split(1)])
    alone = torch.cat([batch(x) for x in images.split(1)])
    settled = slice(200, None)
    assert (one_by_one - whole)[settled].abs().mean() < 0.5 * (alone - whole)[settled].abs().mean()


def test_predict_does_not_move_running_statistics():
    adapter = BNAdapt(make_network("image_bn"), statistics="running", batch_weight=0.5)
    adapter.predict(X)
    fresh = BNAdapt(make_network("image_bn"), statistics="running", batch_weight=0.5)
    assert torch.equal(adapter(X), fresh(X))


class NormAndActivation(nn.BatchNorm2d):
    """Norm and activation in one layer, as some model collections have it."""

    def forward(self, x):
        return super().forward(x).clamp(min=0)


@pytest.mark.parametrize("kind", ["batch", "mixed", "running", "robust", "instance", "auto"])
def test_subclasses_with_a_forward_of_their_own_keep_it(kind):
    plain = make_network("image_bn").eval()
    fused = copy.deepcopy(plain)
    fused.bn1.__class__ = NormAndActivation
    expected = TENT(plain, statistics=kind)(X)
    torch.testing.assert_close(TENT(fused, statistics=kind)(X), expected)


@pytest.mark.parametrize("kind", ["batch", "mixed", "running", "robust", "instance", "auto"])
def test_synchronised_layers_do_as_plain_ones(kind):
    plain = make_network("image_bn")
    expected = TENT(plain, statistics=kind)(X)
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(make_network("image_bn"))
    torch.testing.assert_close(TENT(synchronised, statistics=kind)(X), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "follows"),
    [("batch", True), ("mixed", True), ("auto", True), ("running", False), ("robust", False), ("instance", False)],
)
def test_whether_the_batch_decides_on_the_statistics(kind, follows):
    assert TENT(make_network("image_bn"), statistics=kind).follows_batch(X) is follows
    of_points = TENT(make_network("pointnet_bn"), statistics=kind)  # auto statistics follow images only
    assert of_points.follows_batch(make_batch("pointnet_bn", 8, 0)) is (follows and kind != "auto")


def test_layers_without_statistics_of_their_own_use_the_batch_s():
    network = make_network("image_bn")
    bare = copy.deepcopy(network)
    for name in ("bn1", "bn2"):
        layer = nn.BatchNorm2d(8, track_running_stats=False)
        layer.load_state_dict(getattr(network, name).state_dict(), strict=False)
        setattr(bare, name, layer)
    torch.testing.assert_close(BNAdapt(bare, preset="paper")(X), BNAdapt(network, preset="paper")(X))


def test_gradients_flow_through_the_batch_s_share():
    """Mixed statistics at full share through the hook give the gradient of plain batch statistics."""
    layer, reference = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    layer.running_mean.uniform_(-1, 1)
    layer.running_var.uniform_(0.5, 2)
    layer.eval()
    norms.install_statistics(layer, "mixed", 1.0)
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    weight = torch.randn(4, 3, 5, 5)
    (layer(x) * weight).sum().backward()
    (reference(y) * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-5, rtol=1e-4)


def test_training_statistics_are_those_of_training_mode():
    plain, ours = make_network("image_bn"), make_network("image_bn").eval()
    for layer in (plain.drop, ours.drop):
        layer.p = 0.0
    with norms.training_statistics(ours):
        torch.testing.assert_close(ours(X), plain.train()(X))
    torch.testing.assert_close(ours(X), plain.eval()(X))
    assert torch.equal(ours.bn1.running_var, plain.bn1.running_var)


def test_changes_of_training_statistics_are_counted():
    network = make_network("image_bn").eval()
    own = [network.bn1.running_mean, network.bn1.running_var]
    before = [(statistic.clone(), statistic._version) for statistic in own]
    with torch.no_grad(), norms.training_statistics(network):
        network(X)
    for now, (value, version) in zip(own, before, strict=True):
        assert not torch.equal(now, value)
        assert now._version > version


def test_one_wild_batch_hardly_moves_running_statistics():
    adapter = TENT(make_network("image_bn"), statistics="running", batch_weight=0.1, inputs="any", lr=0.0)
    for _ in range(30):
        adapter(X)
    calm = [tensor.clone() for name, tensor in adapter.model.named_buffers() if "stream_" in name]
    adapter(X * 255)
    wild = [tensor for name, tensor in adapter.model.named_buffers() if "stream_" in name]
    for mean, variance, new_mean, new_variance in zip(calm[::2], calm[1::2], wild[::2], wild[1::2], strict=True):
        assert ((new_mean - mean).abs() <= 0.1 * 3.01 * variance.sqrt() + 1e-3).all()
        assert (new_variance <= variance * (0.9 + 0.1 * 9.01) + 1e-3).all()
        assert not torch.equal(new_mean, mean)


def test_views_in_one_pass_keep_their_own_statistics():
    network = make_network("image_bn").double().eval()
    norms.install_statistics(network, "batch", 1.0)
    views = [make_batch("image_bn", 8, seed).double() * (1 + seed) for seed in range(3)]
    alone = torch.cat([network(view) for view in views])
    with norms.grouped_statistics(network, 3):
        together = network(torch.cat(views))
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-12)
    pooled = network(torch.cat(views))
    assert (pooled - alone).abs().max() > 0.1
    assert "forward" not in vars(network.bn1)


def test_layers_with_a_rule_of_their_own_are_not_grouped():
    class Custom(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    assert norms.can_group(make_network("image_bn"))
    assert norms.can_group(make_network("vit_ln"))
    assert not norms.can_group(nn.Sequential(nn.Conv2d(3, 4, 3), Custom(4)))
    mixed = make_network("image_bn").eval()
    norms.install_statistics(mixed, "mixed", 0.5)
    assert not norms.can_group(mixed)


def test_statistics_are_installed_once():
    network = make_network("image_bn").eval()
    for weight in (0.5, 0.2):
        norms.install_statistics(network, "mixed", weight)
    assert len(network.bn1._forward_pre_hooks) == 1
    assert network.bn1.stream.weight == 0.2


class PlainRobust(nn.Module):
    """RoTTA's layer in training mode, written plainly."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean, self.var = layer.running_mean.clone(), layer.running_var.clone()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.transpose(0, 1).flatten(1)
        mean = 0.95 * self.mean + 0.05 * flat.mean(1)
        var = 0.95 * self.var + 0.05 * ((flat - flat.mean(1, keepdim=True)) ** 2).mean(1)
        self.mean, self.var = mean.detach(), var.detach()
        rows = [((x[:, c] - mean[c]) / (var[c] + self.eps).sqrt()) * self.weight[c] + self.bias[c] for c in range(8)]
        return torch.stack(rows, 1)


class PlainInstanceAware(nn.Module):
    """NOTE's layer in eval mode, sample by sample and channel by channel."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out, count = torch.empty_like(x), x[0, 0].numel()
        for c, (mean, var) in enumerate(zip(self.layer.running_mean, self.layer.running_var, strict=True)):
            for n in range(len(x)):
                own_mean, own_var = x[n, c].mean(), x[n, c].var(correction=1)
                reach, wide = 4 * ((var + 1e-5) / count).sqrt(), 4 * (var + 1e-5) * (2 / (count - 1)) ** 0.5
                new_mean = mean + (own_mean - mean).sign() * ((own_mean - mean).abs() - reach).clamp(min=0)
                new_var = var + (own_var - var).sign() * ((own_var - var).abs() - wide).clamp(min=0)
                normal = (x[n, c] - new_mean) / (new_var.clamp(min=0) + 1e-5).sqrt()
                out[n, c] = normal * self.layer.weight[c] + self.layer.bias[c]
        return out


@pytest.mark.parametrize(("kind", "plain"), [("robust", PlainRobust), ("instance", PlainInstanceAware)])
def test_ten_batches_against_plain_layers(kind, plain):
    """TENT with the layers that RoTTA and NOTE put in the place of BatchNorm."""
    network = make_network("image_bn").double().eval()
    adapter = TENT(network, statistics=kind, preset="cifar10")
    model = copy.deepcopy(network)
    learned = [p for layer in (model.bn1, model.bn2) for p in (layer.weight, layer.bias)]
    model.bn1, model.bn2 = plain(model.bn1), plain(model.bn2)
    optimizer = torch.optim.Adam(learned, 1e-3)
    for seed in range(10):
        x = make_batch("image_bn", 6, seed).double() * (1 - 0.08 * seed)
        logits = model(x)
        optimizer.zero_grad()
        (logits.softmax(1) * logits.log_softmax(1)).sum(1).mean().neg().backward()
        optimizer.step()
        torch.testing.assert_close(adapter(x), logits.detach(), atol=1e-9, rtol=1e-9)
    assert (adapter.predict(x) - adapter.source(x)).abs().max() > 0.05, "the statistics made no difference"


def test_statistics_of_instances_by_hand():
    # Four positions: mean 10, variance 4 (over 3). The layer has 0 and 1: deviations of chance are sqrt(1/4) = 1/2 of
    # the mean, sqrt(2/3) of the variance. Mean 0 + (10 - 4/2) = 8; variance 1 + max(3 - 4 x 0.8165, 0) = 1.
    x = torch.tensor([[[10 + 6**0.5, 10 - 6**0.5, 10.0, 10.0]]], dtype=torch.float64)
    mean, variance = norms.instance_statistics(x, torch.zeros(1).double(), torch.ones(1).double(), 0.0)
    assert mean.item() == pytest.approx(8)
    assert variance.item() == pytest.approx(1)
    # Beyond chance on the lower side: a variance of 0 against 1 over 400 positions, 1 - 4 x sqrt(2/399).
    flat = torch.zeros(1, 1, 400).double()
    _, variance = norms.instance_statistics(flat, torch.zeros(1).double(), torch.ones(1).double(), 0.0)
    assert variance.item() == pytest.approx(4 * (2 / 399) ** 0.5)
    assert norms.instance_statistics(x[:, :, :1], *(alone := (mean, variance)), 0.0) == alone


def test_statistics_of_instances_do_not_depend_on_the_batch():
    adapter = BNAdapt(make_network("image_bn"), statistics="instance")
    alone = torch.cat([adapter(x) for x in X.split(1)])
    torch.testing.assert_close(adapter(X), alone, atol=1e-5, rtol=1e-5)


def test_the_average_as_it_is_ignores_the_batch():
    network = make_network("image_bn").eval()
    norms.install_statistics(network, "robust", 1.0)
    network(X)
    norms.commit_statistics(network)
    norms.use_statistics(network, "average")
    alone = torch.cat([network(x) for x in X.split(1)])
    torch.testing.assert_close(network(X), alone, atol=1e-5, rtol=1e-5)
    moved = 0.95 * network.bn1.running_mean + 0.05 * network.conv1(X).mean((0, 2, 3))
    torch.testing.assert_close(network.bn1.stream_mean, moved.detach())


class CopiesItself(nn.Module):
    """A network that says itself how it is copied: a new one takes its weights."""

    def __init__(self):
        super().__init__()
        self.net = make_network("image_bn")

    def forward(self, x):
        return self.net(x)

    def __deepcopy__(self, memo):
        other = CopiesItself()
        other.load_state_dict(self.state_dict())
        return other.eval()


@pytest.mark.parametrize("kind", ["auto", "running", "mixed", "batch"])
def test_a_network_that_copies_itself_normalises_as_any_other(kind):
    adapter, plain = (TENT(network, statistics=kind) for network in (CopiesItself(), make_network("image_bn")))
    for x in make_stream("image_bn"):
        torch.testing.assert_close(adapter(x), plain(x))
    x = make_stream("image_bn")[0]
    torch.testing.assert_close(adapter.export(x)(x), plain.predict(x))
