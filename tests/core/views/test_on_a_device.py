"""Augmented views, and networks with code of their own, on a device that is not the CPU: the same values."""

from __future__ import annotations

import pytest
import torch

from ctta.base.randomness import Randomness
from ctta.core.networks import Normalized
from ctta.core.views import CloudViews, ImageViews, StrongViews, WeakViews, many_views
from ctta.models.dgcnn import DGCNN
from ctta.models.pointnet import PointNet
from ctta.testing.device import pretended, waits
from ctta.testing.networks import make_batch, make_network
from ctta.training.augment import augment, draw_points

IMAGES, CLOUDS = make_batch("image_bn", 4, seed=0), make_batch("pointnet_bn", 4, seed=0)
VIEWS = {
    "full, per batch": (IMAGES, ImageViews("batch")),
    "full, per sample": (IMAGES, ImageViews("sample")),
    "clean": (IMAGES, ImageViews("sample", clean=True)),
    "weak": (IMAGES, WeakViews()),
    "strong": (IMAGES, StrongViews()),
    "one channel": (IMAGES[:, :1], ImageViews("batch")),
    "clouds, per batch": (CLOUDS, CloudViews("batch")),
    "clouds, per sample": (CLOUDS, CloudViews("sample")),
}
TRAINING = {
    "small images": lambda random: (IMAGES, lambda x: augment(x, random)),
    "large images": lambda random: (make_large(), lambda x: augment(x, random)),
    "clouds": lambda random: (CLOUDS, lambda x: augment(x, random)),
    "points": lambda random: (CLOUDS, lambda x: draw_points(x, 7, random)),
}


def make_large() -> torch.Tensor:
    return torch.nn.functional.interpolate(IMAGES, size=(80, 72), mode="bilinear")


def randomness(device: torch.device, batch: int = 0) -> Randomness:
    """As on a device: what fills tensors there has a generator of its own."""
    random = Randomness(3, batch, device)
    random.device = torch.Generator(device).manual_seed(random.seed)
    return random


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("x", "views"), VIEWS.values(), ids=VIEWS)
def test_views_are_those_of_the_processor(x, views, count):
    cpu = torch.device("cpu")
    expected = many_views(views, x, [randomness(cpu, batch) for batch in range(count)])
    with pretended() as device:
        there = x.to(device)
        waits.clear()
        found = many_views(views, there, [randomness(device, batch) for batch in range(count)])
        assert waits == [], "the host waits for nothing"
        assert found.device == device
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("make", TRAINING.values(), ids=TRAINING)
def test_training_augmentation_is_that_of_the_processor(make):
    x, use = make(randomness(torch.device("cpu")))
    expected = use(x)
    with pretended() as device:
        x, use = make(randomness(device))
        torch.testing.assert_close(use(x.to(device)).cpu(), expected)


def test_a_host_generator_is_noticed():
    with pretended() as device:
        random = Randomness(3, 0, device)
        random.device = random.host
        with pytest.raises(RuntimeError, match="generator of another device"):
            ImageViews()(IMAGES.to(device), random)


NETWORKS = {
    "dgcnn": lambda: DGCNN(5),
    "pointnet": lambda: PointNet(5),
    "normalized": lambda: Normalized(make_network("image_bn"), (0.5, 0.4, 0.3), (0.2, 0.2, 0.3)),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_networks_leave_nothing_behind(make):
    model = make().eval()
    x = IMAGES if isinstance(model, Normalized) else CLOUDS
    with torch.no_grad():
        expected = model(x)
    with pretended() as device:
        there = model.to(device)
        found = there(x.to(device))
        found.square().sum().backward()
        torch.testing.assert_close(found.detach().cpu(), expected, atol=1e-5, rtol=1e-5)
        assert all(p.grad is None or p.grad.device == device for p in there.parameters())
