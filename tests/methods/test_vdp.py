"""VDP: penalty and importance by hand, where prompts are, and domains against plain torch."""

from __future__ import annotations

import copy

import pytest
import torch

from ctta import VDP
from ctta.methods.vdp import border_mask, gained_importance, homeostasis
from ctta.testing.networks import make_batch, make_network
from plain import with_batch_statistics


def mirrored(x, random=None):
    """A view without randomness."""
    return 0.8 * x.flip(3)


def test_homeostasis_by_hand():
    # 2 x 0.5^2 + 4 x 0.1^2
    found = homeostasis(torch.tensor([0.5, 0.3]), torch.tensor([0.0, 0.2]), torch.tensor([2.0, 4.0]))
    assert found.item() == pytest.approx(0.54)


def test_importance_by_hand():
    # 0.2 / (0.1^2 + 0.001), and nothing for an entry that raised the loss.
    found = gained_importance(torch.tensor([0.2, -0.2]), torch.tensor([0.1, 0.1]))
    assert found.tolist() == pytest.approx([0.2 / 0.011, 0.0])


def test_prompts_are_on_the_border():
    mask = border_mask((3, 16, 8), 0.125, torch.device("cpu"), torch.float32)
    assert mask[0, :2].all()
    assert mask[0, -2:].all()
    assert mask[2, :, :1].all()
    assert mask[1, 2:14, 1:7].sum() == 0
    assert border_mask((3, 7, 7), 0.5, torch.device("cpu"), torch.float32).all()
    assert border_mask((24, 3), 0.125, torch.device("cpu"), torch.float32).shape == (1, 3)


def test_against_plain_torch():
    """Three domains of four batches, with the penalty at work from the second on."""
    network = make_network("image_bn").double()
    model = with_batch_statistics(network)
    adapter = VDP(network, preset="cifar10", lr=5e-3, homeostasis=0.5, views=mirrored)
    mask = torch.ones(3, 16, 16, dtype=torch.float64)
    mask[:, 2:14, 2:14] = 0
    student = [torch.zeros_like(mask, requires_grad=True) for _ in range(2)]  # specific, agnostic
    teacher = [torch.zeros_like(mask) for _ in range(2)]
    anchor, importance, path = (torch.zeros_like(mask) for _ in range(3))
    optimizer = torch.optim.Adam(student, 5e-3)
    for number in range(12):
        x = make_batch("image_bn", 8, number).double() * (1 - 0.2 * (number // 4))
        if number in (4, 8):
            adapter.begin_domain()
            with torch.no_grad():
                importance += (path / ((student[1] - anchor) ** 2 + 1e-3)).clamp(min=0)
                anchor, path = student[1].clone(), torch.zeros_like(path)
        with torch.no_grad():
            target = model(x + mask * sum(teacher))
        entropy = -(target.softmax(1) * model(mirrored(x) + mask * sum(student)).log_softmax(1)).sum(1).mean()
        (gradient,) = torch.autograd.grad(entropy, student[1], retain_graph=True)
        optimizer.zero_grad()
        (entropy + 0.5 * (importance * (student[1] - anchor) ** 2).sum()).backward()
        before = copy.deepcopy(student[1].detach())
        optimizer.step()
        with torch.no_grad():
            path -= gradient * (student[1] - before)
            for old, new in zip(teacher, student, strict=True):
                old.copy_(0.99 * old + 0.01 * new)
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, target, atol=1e-7, rtol=1e-7)
    assert step.info["penalty"] > 0
    torch.testing.assert_close(adapter.student.agnostic.detach(), student[1].detach(), atol=1e-7, rtol=1e-7)
    assert (adapter.importance > 0).any()


def test_the_network_stays_as_it_is():
    network = make_network("image_bn")
    adapter = VDP(network, lr=0.1)
    for seed in range(3):
        adapter(make_batch("image_bn", 8, seed))
    pairs = zip(adapter.source_model.parameters(), network.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
