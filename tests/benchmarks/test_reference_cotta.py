"""The reference that CoTTA is timed against is CoTTA."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ctta
from benchmarks.reference_cotta import ReferenceCoTTA
from ctta.testing.networks import make_batch, make_network, make_stream


def test_reference_is_cotta_if_nothing_is_random():
    # Mirrored batches, so that teacher and student differ from the start; otherwise all gradients are rounding errors.
    network, stream = make_network("image_bn").double(), [x.double() for x in make_stream("image_bn", 4)]
    confidence = [ctta.BNAdapt(network, preset="paper")(x).softmax(1).amax(1).mean().item() for x in stream]
    settings = {"lr": 1e-2, "ema": 0.9, "augmentation_threshold": sum(confidence) / 4, "restore": 0.0}
    ours = ctta.CoTTA(
        network,
        preset="cifar10",
        views=lambda x, random: x.flip(3),
        execution=ctta.Execution(channels_last=False),
        **settings,
    )
    reference = ReferenceCoTTA(network, views=2, view=lambda x: x.flip(3), **settings)
    opened = []
    for x in (stream[i] for i in (confidence.index(min(confidence)), 0, 1, 2, 3)):
        step = ours.step(x)
        torch.testing.assert_close(reference(x), step.logits, atol=1e-8, rtol=1e-8)
        opened.append(bool(step.info["views"]))
    assert opened[0]
    assert not all(opened)
    moved = (ours.student.head.weight - network.head.weight).abs().max().item()
    assert moved > 0.01  # it has learned


def test_reference_restores_each_weight_with_the_given_probability():
    network = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64 * 36, 10))
    reference = ReferenceCoTTA(network, views=1, restore=0.25)
    with torch.no_grad():
        for parameter in reference.student.parameters():
            parameter.add_(1)
    torch.manual_seed(0)
    reference.restore()
    pairs = zip(reference.student.parameters(), network.parameters(), strict=True)
    back = torch.cat([(one == other).flatten() for one, other in pairs])
    assert len(back) > 20_000
    assert back.float().mean().item() == pytest.approx(0.25, abs=0.02)


def test_reference_makes_all_augmentations_even_if_they_are_not_used():
    seen = []

    def view(x: Tensor) -> Tensor:
        seen.append(x)
        return x

    ReferenceCoTTA(make_network("image_bn"), views=5, augmentation_threshold=0.0, view=view)(
        make_batch("image_bn", 8, 0)
    )
    assert len(seen) == 5
