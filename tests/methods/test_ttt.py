"""TTT: both ways to a rotation head, and ten batches against plain torch."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ctta import TTT, ModelError, Normalized, StateError
from ctta.core.rotation import RotationHead, quarter_turns
from ctta.methods.ttt import fit
from ctta.testing.networks import make_batch, make_network, make_stream
from plain import with_batch_statistics


def joint_network():
    network = make_network("image_bn").double()
    network.rotation_head = RotationHead(8).double()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        network.rotation_head.weight.normal_()
    return network


def test_against_plain_torch():
    network = joint_network()
    model = with_batch_statistics(network)
    adapter = TTT(network, preset="cifar10", joint=True, steps=2)
    learned = [p for name, p in model.named_parameters() if not name.startswith("head.")]
    optimizer = torch.optim.SGD(learned, 1e-4, 0.9)
    features = []
    model.head.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    for x in [make_batch("image_bn", 6, seed).double() for seed in range(10)]:
        for _ in range(2):
            model(torch.cat([torch.rot90(x, turn, (2, 3)) for turn in range(4)]))
            logits = features[-1] @ model.rotation_head.weight.T + model.rotation_head.bias
            optimizer.zero_grad()
            F.cross_entropy(logits, torch.arange(24) // 6).backward()
            optimizer.step()
        torch.testing.assert_close(adapter(x), model(x).detach(), atol=1e-9, rtol=1e-9)
    assert (adapter.rotation.weight - network.rotation_head.weight).abs().max() > 1e-4


def test_a_head_is_fitted_from_clean_images():
    """Features that tell turns apart are enough; the network is not touched."""
    head, features = RotationHead(4), torch.eye(4).repeat_interleave(5, 0)
    fit(head, features, 300)
    assert head(features).argmax(1).tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    network = make_network("image_bn")
    adapter = TTT(network, head_steps=50)
    with pytest.raises(StateError, match="needs source data"):
        adapter(make_batch("image_bn", 4, 0))
    adapter.prepare((x, torch.zeros(len(x))) for x in make_stream("image_bn", 3))
    assert torch.equal(adapter.source_weight, adapter.rotation.weight)
    assert adapter.source_weight.any()
    pairs = zip(adapter.model.parameters(), network.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_head_that_is_fitted_afterwards_is_named_as_such(caplog):
    TTT(joint_network(), preset="cifar10", joint=True)
    assert caplog.messages == []
    TTT(make_network("image_bn"), preset="cifar10")
    (message,) = caplog.messages
    assert "not the method" in message


def test_joint_without_a_head_says_what_to_do():
    with pytest.raises(ModelError, match=r"auxiliary: rotation.*prepare"):
        TTT(make_network("image_bn"), joint=True)


def test_the_number_of_classes_is_not_that_of_turns():
    network = joint_network()
    assert TTT(Normalized(network, [0.5] * 3, [0.5] * 3), joint=True).classes == 5
    assert TTT(copy.deepcopy(network), joint=True).head == "head"


def test_a_model_that_is_only_a_head():
    with pytest.raises(ModelError, match="only a head"):
        TTT(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)))


def test_the_loss_falls():
    adapter = TTT(joint_network(), joint=True, lr=0.001, steps=10)
    x = make_batch("image_bn", 8, 0).double()
    losses = [adapter.step(x).info["loss"].item() for _ in range(4)]
    assert max(losses[1:]) < losses[0]
    assert len(quarter_turns(x)) == 32
