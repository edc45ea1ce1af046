"""AdaContrast's equations with numbers worked by hand, and the whole against plain torch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from ctta import AdaContrast, ModelError
from ctta.methods.adacontrast import contrast_loss, diversity_loss, random_queue, refined
from ctta.testing.networks import make_batch, make_network
from plain import identity_views


def test_refined_is_the_mean_over_the_most_similar():
    probabilities = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    similarity = torch.tensor([[0.9, 0.8, 0.1], [0.0, 0.2, 0.3]])
    assert refined(similarity, probabilities, 2).tolist() == [[0.75, 0.25], [0.25, 0.75]]
    torch.testing.assert_close(refined(similarity, probabilities, 10), torch.full((2, 2), 0.5))


def test_contrast_loss_leaves_the_same_label_out():
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8]])
    queue = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    same = torch.tensor([[False, True]])
    # 0.6 for the key, 0 for the one entry that counts, at temperature 0.5.
    assert contrast_loss(query, key, queue, same, 0.5).item() == pytest.approx(math.log(1 + math.exp(-1.2)))
    assert contrast_loss(query, key, queue, ~same, 0.5).item() == pytest.approx(math.log(1 + math.exp(0.8)))
    assert contrast_loss(query, key, queue, same | True, 0.5).item() == 0  # no negatives are left


def test_diversity_loss_is_lowest_for_a_uniform_mean():
    sure = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    assert diversity_loss(sure).item() == pytest.approx(-math.log(2))
    assert diversity_loss(sure[:1]).item() == pytest.approx(0, abs=1e-6)


def test_the_queue_starts_at_random_directions():
    features, labels = random_queue(1000, 8, 5)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(1000))
    assert features.mean(0).abs().max() < 0.06
    assert torch.bincount(labels).tolist() == pytest.approx([200] * 5, abs=50)


def hooked(network):
    network = copy.deepcopy(network)
    network.head.register_forward_pre_hook(lambda _, args: setattr(network, "features", args[0]))
    network.drop.p = 0.0
    return network.train()


def test_against_plain_torch():
    """Without augmentation, as released: training mode to learn, evaluation mode to predict."""
    network = make_network("image_bn")
    with torch.no_grad():  # so that all classes are predicted
        network.head.bias -= network.eval()(make_batch("image_bn", 64, 0)).mean(0)
    student, key = hooked(network), hooked(network)
    adapter = AdaContrast(
        network, preset="cifar10", views=identity_views, ema=0.9, queue=32, neighbours=3, lr=0.01, refine_after=12
    )
    optimizer = torch.optim.SGD(student.parameters(), 0.01, 0.9, nesterov=True, weight_decay=1e-4)
    queue, labels = (part.clone() for part in random_queue(32, 8, 5))
    memory, place, refinements = [], 0, 0
    for number, x in enumerate([make_batch("image_bn", 6, seed) for seed in range(9)]):
        student.train()
        with torch.no_grad():
            label = student(x).argmax(1)
            if 6 * number >= 12:
                for i, row in enumerate(F.normalize(student.features, dim=1)):
                    close = sorted(memory, key=lambda entry: -(row @ entry[0]).item())[:3]
                    refinement = sum(p for _, p in close).argmax()
                    refinements += int(refinement != label[i])
                    label[i] = refinement
        z = student(x)
        query = F.normalize(student.features, dim=1)
        with torch.no_grad():
            if number:
                for old, new in zip(key.parameters(), student.parameters(), strict=True):
                    old.copy_(0.9 * old + 0.1 * new)
            key(x)
            keys = F.normalize(key.features, dim=1)
        terms = []
        for i in range(6):
            strangers = [torch.exp(query[i] @ queue[j] / 0.07) for j in range(32) if labels[j] != label[i]]
            mine = torch.exp(query[i] @ keys[i] / 0.07)
            terms.append(-torch.log(mine / (mine + sum(strangers))))
        mean = z.softmax(1).mean(0)
        loss = F.cross_entropy(z, label) + torch.stack(terms).mean() + (mean * (mean + 1e-8).log()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            places = [(place + i) % 32 for i in range(6)]
            queue[places], labels[places], place = keys, label, place + 6
            p = key(x).softmax(1)
            memory = (memory + list(zip(F.normalize(key.features, dim=1), p, strict=True)))[-32:]
            expected = student.eval()(x)
        step = adapter.step(x)
        torch.testing.assert_close(step.info["loss"], loss.detach(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(step.logits, expected, atol=1e-4, rtol=1e-3)
    assert refinements  # otherwise the neighbours never changed a label
    torch.testing.assert_close(adapter.student.bn1.running_var, student.bn1.running_var, atol=1e-5, rtol=1e-4)
    assert adapter.seen == 54


def test_batches_larger_than_the_queue_leave_their_last_samples():
    adapter = AdaContrast(make_network("image_bn"), preset="cifar10", views=identity_views, queue=4)
    adapter(make_batch("image_bn", 6, 0))
    assert adapter.seen == 6
    torch.testing.assert_close(adapter.memory_probabilities.sum(1), torch.ones(4))


def test_statistics_follow_no_pass_that_fails():
    adapter = AdaContrast(make_network("image_bn"), preset="cifar10", queue=4)
    before = adapter.student.bn1.running_mean.clone()
    adapter.student.conv2.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ModelError, match="ZeroDivisionError"):
        adapter(make_batch("image_bn", 6, 0))
    assert torch.equal(adapter.student.bn1.running_mean, before)
    assert not adapter.student.bn1.training
