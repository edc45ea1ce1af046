"""DeYO: equations and ways to destroy shape by hand, and ten batches against plain torch."""

from __future__ import annotations

import math

import pytest
import torch

from ctta import DeYO, InputError
from ctta.base.randomness import Randomness
from ctta.methods.deyo import covered_middle, destroy, plpd, sample_weight
from ctta.testing.networks import CLASSES, make_batch, make_network
from plain import make_decisive, norm_weights, with_batch_statistics

BATCHES = [make_batch("image_bn", 16, seed) for seed in range(10)]


def random(seed=0):
    return Randomness(seed, 0, torch.device("cpu"))


def test_plpd_by_hand():
    # Labels 0 and 1: 0.8 - 0.5, and 0.7 - 0.9.
    whole, shapeless = torch.tensor([[0.8, 0.2], [0.3, 0.7]]).log(), torch.tensor([[0.5, 0.5], [0.1, 0.9]]).log()
    assert plpd(whole, shapeless).tolist() == pytest.approx([0.3, -0.2])


def test_weight_by_hand():
    found = sample_weight(torch.tensor([0.5]), torch.tensor([0.3]), 0.9)
    assert found.item() == pytest.approx(math.exp(0.4) + math.exp(0.3))


def test_patches_are_shuffled_whole_and_differently_per_image():
    image = torch.arange(16.0).repeat_interleave(4).view(4, 4, 2, 2).permute(0, 2, 1, 3).reshape(1, 1, 8, 8)
    found = destroy(image.repeat(5, 3, 1, 1), "patch", 4, random())
    patches = found.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)  # (N, C, 4, 4, pixels)
    assert (patches == patches[..., :1]).all(), "a patch was cut"
    numbers = patches[:, 0, :, :, 0].flatten(1)
    assert numbers.sort(1).values.tolist() == [list(range(16))] * 5
    assert torch.equal(patches[:, 0], patches[:, 2]), "the channels of a pixel stay together"
    assert len({tuple(row) for row in numbers.tolist()}) == 5


@pytest.mark.parametrize("size", [(7, 7), (2, 9), (33, 32)])
def test_sizes_that_have_no_such_patches(size):
    found = destroy(torch.rand(2, 3, *size), "patch", 4, random())
    assert found.shape == (2, 3, *size)


def test_pixels_and_points_are_shuffled():
    x = torch.rand(2, 3, 6, 5)
    found = destroy(x, "pixel", 4, random())
    assert torch.equal(found.flatten(2).sort(2).values, x.flatten(2).sort(2).values)
    assert not torch.equal(found, x)
    cloud = torch.rand(2, 20, 3)
    found = destroy(cloud, "patch", 4, random())
    assert torch.equal(found.sort(1).values, cloud.sort(1).values)
    assert not torch.equal(found[..., 0].argsort(1), found[..., 1].argsort(1))
    with pytest.raises(InputError, match="destroys the shape of images"):
        destroy(torch.rand(2, 20), "patch", 4, random())


def test_the_middle_is_covered_by_the_mean():
    x = torch.rand(2, 3, 8, 8)
    found = covered_middle(x)
    expected = x.mean((2, 3), keepdim=True).expand(-1, -1, 4, 4)
    assert torch.equal(found[:, :, 2:6, 2:6], expected)
    found[:, :, 2:6, 2:6] = x[:, :, 2:6, 2:6]
    assert torch.equal(found, x)


class Mirrored(DeYO):
    """Destroys by a rule without randomness."""

    def destroyed(self, x):
        return x.flip(3) * 0.7


@pytest.mark.parametrize(("preset", "limits"), [("cifar10", {}), ("imagenet", {"plpd": 0.0, "frozen": ()})])
def test_against_plain_torch(preset, limits):
    network = make_decisive().double()
    model = with_batch_statistics(network)
    learned = norm_weights(model)
    rates = {"cifar10": lambda p: torch.optim.Adam(p, 1e-3), "imagenet": lambda p: torch.optim.SGD(p, 2.5e-4, 0.9)}
    optimizer = rates[preset](learned)
    adapter = Mirrored(network, preset=preset, **limits)
    counts = []
    for x in (batch.double() for batch in BATCHES):
        z = model(x)
        h = -(z.softmax(1) * z.log_softmax(1)).sum(1)
        low = [i for i in range(16) if h[i] < 0.5 * math.log(CLASSES)]
        kept, terms = [], []
        with torch.no_grad():
            other = model((x.flip(3) * 0.7)[low]).softmax(1)
        for row, i in enumerate(low):
            label = z[i].argmax()
            lost = (z[i].softmax(0)[label] - other[row, label]).item()
            if lost > limits.get("plpd", 0.2):
                kept.append(i)
                terms.append(h[i] * (math.exp(0.4 * math.log(CLASSES) - h[i].item()) + math.exp(lost)))
        step = adapter.step(x)
        torch.testing.assert_close(step.logits, z.detach(), atol=1e-8, rtol=1e-8)
        assert step.samples["selected"].nonzero().flatten().tolist() == kept
        counts.append(len(kept))
        if kept:
            optimizer.zero_grad()
            (sum(terms) / len(terms)).backward()
            optimizer.step()
    assert 0 < sum(counts) < 160
    torch.testing.assert_close(norm_weights(adapter.model), learned, atol=1e-8, rtol=1e-8)


def test_nothing_is_learned_if_nothing_is_kept():
    adapter = DeYO(make_network("image_bn"), margin=0.0, statistics="batch")
    before = [p.clone() for p in adapter.trained]
    step = adapter.step(BATCHES[0])
    assert step.info["idle"] == 1
    assert step.info["forwards"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, adapter.trained, strict=True))
