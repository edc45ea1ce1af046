"""RMT's equations with numbers worked by hand, and the whole against plain torch."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ctta import RMT, InputError, StateError
from ctta.base import own_code
from ctta.core.contrast import contrastive_loss, draw_projector, make_projector, nearest
from ctta.core.losses import self_training
from ctta.methods.rmt import class_means
from ctta.testing.networks import CLASSES, make_batch, make_network
from plain import cross_entropies, identity_views, with_batch_statistics


def source(batches=3):
    return [(make_batch("image_bn", 10, 50 + i), torch.arange(10) % (CLASSES - 1)) for i in range(batches)]


def test_class_means():
    batches = [
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 2])),
        (torch.tensor([[5.0, 0.0]]), torch.tensor([0])),
    ]
    means, known = class_means(batches, torch.zeros(3, 2))
    assert means.tolist() == [[3, 1], [0, 0], [3, 4]]
    assert known.tolist() == [True, False, True]


def test_nearest_is_by_direction_and_among_known_classes():
    prototypes = torch.tensor([[9.0, 0.0], [0.0, 0.1], [-1.0, 1.0]])
    features = torch.tensor([[1.0, 3.0], [-2.0, 2.1], [1.0, 0.1]])
    assert nearest(features, prototypes, torch.ones(3).bool()).tolist() == prototypes[[1, 2, 0]].tolist()
    known = torch.tensor([True, True, False])
    assert nearest(features, prototypes, known).tolist() == prototypes[[1, 1, 0]].tolist()


def test_contrastive_loss():
    # Two samples, two views, at right angles to each other, temperature 1: each of the four features sees its friend at
    # similarity 1 and two strangers at 0.
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    views = [torch.stack([one, other]), torch.stack([one, other])]
    assert contrastive_loss(views, 1.0).item() == pytest.approx(-1 + math.log(math.e + 2))
    # A single sample has no strangers: its two friends share the softmax.
    assert contrastive_loss([one[None]] * 3, 0.1).item() == pytest.approx(math.log(2))


def test_self_training_averages_four_cross_entropies():
    student, view, teacher = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)).unbind()
    expected = sum(cross_entropies(teacher, each) + cross_entropies(each, teacher) for each in (student, view))
    torch.testing.assert_close(self_training(student, view, teacher), expected / 4)


def test_the_projector_starts_as_linear_layers_do_and_by_the_seed():
    projector = make_projector(64, 128).to_empty(device="cpu")
    draw_projector(projector, 0)
    first = projector[0].weight.detach().clone()
    assert first.abs().max() <= 1 / 8
    assert first.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.03)
    draw_projector(projector, 0)
    assert torch.equal(projector[0].weight, first)
    draw_projector(projector, 1)
    assert not torch.equal(projector[0].weight, first)


@pytest.mark.parametrize("preset", ["cifar10", "imagenet"])
def test_against_plain_torch(preset):
    network = make_network("image_bn")
    student, teacher = with_batch_statistics(network), with_batch_statistics(network)
    seen = {}
    student.head.register_forward_pre_hook(lambda _, args: seen.update(features=args[0]))

    totals, counts = torch.zeros(CLASSES, 8), torch.zeros(CLASSES)
    with torch.no_grad():
        for x, labels in source():
            student(x)
            for row, label in zip(seen["features"], labels, strict=True):
                totals[label] += row
                counts[label] += 1
    prototypes = (totals / counts[:, None])[: CLASSES - 1]  # the last class is not there

    adapter = RMT(network, preset=preset, views=identity_views, ema=0.9, projection=16)
    adapter.prepare(source())
    projector = copy.deepcopy(adapter.projector)
    learned = [*student.parameters(), *projector.parameters()]
    optimizer = (
        torch.optim.Adam(learned, 1e-3) if preset == "cifar10" else torch.optim.SGD(learned, 1e-2, 0.9, nesterov=True)
    )
    for x in [make_batch("image_bn", 6, seed) for seed in range(8)]:
        z = student(x)
        features = seen["features"]
        other = student(x)
        other_features = seen["features"]
        t = teacher(x).detach()
        close = torch.stack([F.cosine_similarity(row[None], prototypes).argmax() for row in features.detach()])
        flat = F.normalize(projector(torch.cat([prototypes[close], features, other_features])), dim=1)
        terms = []
        for i in range(18):
            others = [j for j in range(18) if j != i]
            total = sum(torch.exp(flat[i] @ flat[j] / 0.1) for j in others)
            terms += [-torch.log(torch.exp(flat[i] @ flat[j] / 0.1) / total) for j in others if j % 6 == i % 6]
        both = [cross_entropies(t, each) + cross_entropies(each, t) for each in (z, other)]
        loss = (both[0] + both[1]).mean() / 4 + torch.stack(terms).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.copy_(0.9 * old + 0.1 * new)
        step = adapter.step(x)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(step.logits, (z + t).detach(), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(adapter.projector[2].weight, projector[2].weight, atol=1e-4, rtol=1e-3)


def test_source_data_come_first():
    adapter, x = RMT(make_network("image_bn")), make_batch("image_bn", 4, 0)
    with pytest.raises(StateError, match="needs source data once"):
        adapter(x)
    adapter.prepare(source())
    assert adapter.source_known.tolist() == [True] * (CLASSES - 1) + [False]
    adapter(x)
    with pytest.raises(StateError, match="The stream has begun"):
        adapter.prepare(source())
    before = adapter.source_prototypes.clone()
    adapter.reset()
    assert torch.equal(adapter.source_prototypes, before)  # a reset keeps what was learned of the source
    adapter(x)


def test_source_data_that_cannot_be_used():
    adapter, x = RMT(make_network("image_bn")), make_batch("image_bn", 4, 0)
    with pytest.raises(InputError, match="from 0 to 4"):
        adapter.prepare([(x, torch.tensor([0, 1, 2, 5]))])
    with pytest.raises(InputError, match="there were no source data"):
        adapter.prepare([])
    assert not adapter.prepared


@pytest.mark.parametrize(("name", "replayed"), [("RMTWarmUp", 0.0), ("RMTReplay", 1.0)])
def test_the_released_rmt_warms_up_and_replays(name, replayed):
    place = f"{Path(__file__).parents[2] / 'experiments/rmt_replay.py'}:{name}"
    network, steps = make_network("image_bn"), 250
    adapter = own_code.load(place)(network, preset="cifar10", views=identity_views, ema=0.9, contrast=0.0)
    student, teacher = with_batch_statistics(network), with_batch_statistics(network)
    optimizer = torch.optim.Adam(student.parameters(), 1e-3)

    def follow():
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.copy_(0.9 * old + 0.1 * new)

    adapter.prepare(source())
    for number, (x, _) in enumerate(source(), start=1):
        optimizer.param_groups[0]["lr"] = 1e-3 * number / steps
        z, t = student(x), teacher(x).detach()
        optimizer.zero_grad()
        ((cross_entropies(t, z) + cross_entropies(z, t)) / 2).mean().backward()
        optimizer.step()
        follow()
    optimizer.param_groups[0]["lr"] = 1e-3
    for number, x in enumerate(make_batch("image_bn", 6, seed) for seed in range(5)):
        z, t = student(x), teacher(x).detach()
        shown, label = source()[number % 3]
        loss = (cross_entropies(t, z) + cross_entropies(z, t)).mean() / 2
        loss = loss + replayed * F.cross_entropy(student(shown), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow()
        step = adapter.step(x)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(step.logits, (z + t).detach(), atol=1e-4, rtol=1e-3)
