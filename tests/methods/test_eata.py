"""EATA: the penalty worked by hand, the Fisher information, and ten batches against plain torch."""

from __future__ import annotations

import pytest
import torch

from ctta import EATA, InputError, StateError
from ctta.methods.eata import forgetting
from ctta.testing.networks import make_batch
from plain import PlainETA, adam, make_decisive, norm_weights, with_batch_statistics

BATCHES = [make_batch("image_bn", 32, seed) for seed in range(10)]
SOURCE = [make_batch("image_bn", n, 100 + n) for n in (12, 12, 7)]


def labelled(batches):
    return [(x, torch.zeros(len(x), dtype=torch.int64)) for x in batches]


def test_forgetting_by_hand():
    parameters, source = (
        [torch.tensor([1.0, 2.0]), torch.tensor([3.0])],
        [torch.tensor([0.0, 2.0]), torch.tensor([1.0])],
    )
    # 3 (1 - 0)^2 + 5 (2 - 2)^2 + 0.5 (3 - 1)^2
    assert forgetting(parameters, source, torch.tensor([3.0, 5.0, 0.5])).item() == 5.0


def plain_fisher(network, batches):
    network = with_batch_statistics(network)
    learned = norm_weights(network)
    squares = [torch.zeros_like(p) for p in learned]
    for x in batches:
        logits = network(x)
        loss = torch.nn.functional.cross_entropy(logits, logits.argmax(1))
        for square, gradient in zip(squares, torch.autograd.grad(loss, learned), strict=True):
            square += gradient**2 / len(batches)
    return squares


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_eata_over_ten_batches(dtype, tolerance):
    network = make_decisive().to(dtype)
    source = [x.to(dtype) for x in SOURCE]
    used = [source[0], source[1][:8]]  # the first twenty images
    reference = PlainETA(network, adam, d=0.9, fisher=plain_fisher(network, used), anchor=2000.0)
    adapter = EATA(network, preset="cifar10", similarity=0.9, anchor=2000.0, fisher_images=20)
    adapter.prepare(labelled(source))
    free = PlainETA(network, adam, d=0.9)
    for x in BATCHES:
        expected = reference(x.to(dtype))
        torch.testing.assert_close(adapter(x.to(dtype)), expected, atol=tolerance, rtol=tolerance)
        free(x.to(dtype))
    assert not torch.allclose(free.learned[0], reference.learned[0], atol=1e-4), "the anchor must be at work"


def test_fisher_needs_usable_source_images():
    adapter = EATA(make_decisive())
    with pytest.raises(StateError, match="needs source data"):
        adapter(BATCHES[0])
    with pytest.raises(InputError, match="there were none"):
        adapter.prepare([])
    with pytest.raises(InputError, match="NaN or infinity"):
        adapter.prepare(labelled([SOURCE[0] * float("nan")]))
    with pytest.raises(StateError, match="needs source data"):
        adapter(BATCHES[0])
    adapter.prepare(labelled(SOURCE))
    assert all(parameter.grad is None for parameter in adapter.parameters())
    fisher = adapter.source_fisher.clone()
    assert (fisher > 0).any()
    adapter(BATCHES[0])
    adapter.reset()
    assert torch.equal(adapter.source_fisher, fisher), "what the source gave outlives a reset"
