"""Auto statistics: the equations with numbers worked by hand, and what they promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ctta import DSS, TENT, BNAdapt, Source
from ctta.base.errors import InputError
from ctta.core import shares
from ctta.core import statistics as norms
from ctta.core.shares import CAUTIOUS, Belief
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.models.load import embedded_model
from ctta.testing.networks import make_batch, make_network, make_stream

X = make_batch("image_bn", 8, 0)
LEARNS_NOTHING = {BNAdapt: {}, TENT: {"lr": 0.0}}


def sure_of(*labels, classes=5):
    """Logits of a model that is certain."""
    return 100.0 * nn.functional.one_hot(torch.tensor(labels), classes)


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        (
            sure_of(0, 0, 1, 1),
            0.375,
        ),  # half of all pairs are alike, by chance a fifth: 0.3 / 0.8
        (sure_of(3, 3, 3, 3), 1.0),
        (sure_of(0, 1, 2, 3), 0.25),  # as far as four images can tell
        (sure_of(2), 1.0),
        (torch.zeros(4, 5), 1.0),  # unsure predictions tell nothing
        (torch.zeros(4, 1), 1.0),
        # Half sure, half of two classes: squares of the mean (3/8, 3/8, 1/4), 22/64; of the single ones 3/8.
        (torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]).log(), (22 / 24 - 1 / 3) / (2 / 3)),
    ],
)
def test_likeness(logits, expected):
    assert shares.likeness(shares.predictions(logits.double())).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shift", "likeness", "doubt", "excess", "share"),
    [
        (0.5, 0.5, 0.5, 5 - 0.475 / 0.525, (5 - 0.475 / 0.525) / 5.5),
        (0.5, 1.0, 0.5, 0.0, 0.0),  # one class explains a shift of 19 times the spread
        (3.8, 1.0, 2.0, 19.0, 19 / 40),
        (3.8, 1.0, 0.0, 19.0, 0.5),
        (0.0, 0.01, 2.0, 0.0, 0.0),
    ],
)
def test_share_of_a_shift_by_a_spread_of_a_tenth(shift, likeness, doubt, excess, share):
    found = shares.share(torch.tensor(shift), torch.tensor(0.1), Belief(likeness, doubt))
    assert [value.item() for value in found] == pytest.approx([share, excess])


@pytest.mark.parametrize(
    ("excesses", "likeness", "doubt"),
    [
        ([0.0] * 11, 1.0, 2.0),
        ([0.0] * 10 + [100.0], 1.0, 2.0),  # one layer of eleven does not fit the network's own statistics
        ([0.4] * 11, 0.25 + 0.75 / (1 + (0.4 / 3) ** 4), 1.0),
        ([2.0] * 11, 0.25 + 0.75 / (1 + 16 / 81), 2 / 26),
        ([0.0] * 9 + [3.0, 100.0], 0.25 + 0.75 / 2, 2 / 57.25),
    ],
)
def test_belief_of_four_images_that_look_the_same(excesses, likeness, doubt):
    belief = shares.believe(shares.predictions(sure_of(3, 3, 3, 3)), [torch.tensor(value) for value in excesses], 4)
    assert [belief.likeness.item(), belief.doubt.item()] == pytest.approx([likeness, doubt])


def test_half_of_a_batch_does_not_make_images_less_alike_than_the_whole():
    """Two images cannot look less alike than 1 / 2, but they stand for four."""
    belief = shares.believe(shares.predictions(sure_of(0, 1)), [torch.tensor(0.0)], 4)
    assert belief.likeness.item() == pytest.approx(0.5)


def blend(x, mean, variance, eps, belief):
    """What becomes of a layer's input, if nothing is known of other images."""
    return shares.blend(shares.Gathered.of(x, mean, variance, eps), belief)


def test_a_layer_worked_by_hand():
    """Two images with means 2 and 6, variance 1 each: mean 4, variance 5. The mean squares are 5 and 37."""
    x = torch.tensor([[[1.0, 3.0]], [[5.0, 7.0]]])
    mean, variance, excess, _ = blend(x, torch.zeros(1), torch.ones(1), 0.0, Belief(0.5, 0.5))
    explained = 0.475 / 0.525
    assert mean.item() == pytest.approx(4 * (9 - explained) / 9.5)  # a shift of 16 counts as 9, a spread of 4.05 as 1
    of_variance = (9 / 3 - explained) / (9 / 3 + 0.5)  # a shift of 4 squared counts as 9, the spread of 256 as 3
    assert variance.item() == pytest.approx(5**of_variance)
    assert excess.item() == pytest.approx(9 - explained)


def test_one_channel_that_was_nearly_constant_is_not_all_there_is():
    """Of 64 channels one has a source variance of a millionth of the batch's: it alone makes no layer follow."""
    x = torch.randn(64, 64, 5, 5, generator=torch.Generator().manual_seed(0))
    variance = torch.ones(64)
    variance[0] = 1e-6
    _, found, excess, _ = blend(x, torch.zeros(64), variance, 1e-8, Belief(1 / 64))
    assert excess < 3
    assert (found[1:] - 1).abs().max() < 0.2


@pytest.mark.parametrize("shape", [(6, 4, 9), (6, 4, 3, 3), (6, 4, 3, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_shares_are_the_batch_s_statistics(shape, dtype, monkeypatch):
    monkeypatch.setattr(shares, "share", lambda shift, spread, belief: (torch.ones_like(shift), shift))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype) * 3 + 1
    mean, variance, *_ = blend(x, torch.zeros(4, dtype=dtype), torch.ones(4, dtype=dtype), 1e-5, CAUTIOUS)
    flat = x.transpose(0, 1).flatten(1)
    assert mean.dtype == dtype
    torch.testing.assert_close(mean, flat.mean(1))
    torch.testing.assert_close(variance, flat.var(1, correction=0))


@pytest.mark.parametrize("shape", [(64, 4), (64, 4, 1), (64, 4, 1, 1)])
def test_a_layer_after_pooling_keeps_the_source_s_statistics(shape):
    layer = (nn.BatchNorm1d if len(shape) < 4 else nn.BatchNorm2d)(4).eval()
    norms.install_statistics(layer, "auto", 1.0)
    layer.stream.belief = Belief(1 / 64, 0.1)
    x = torch.randn(shape) * 3 + 5
    torch.testing.assert_close(layer(x), x / (1 + layer.eps) ** 0.5)
    assert layer.stream.blended.excess == 0


def test_a_mixed_batch_follows_a_shift_that_one_class_does_not():
    x = torch.randn(64, 4, 5, 5, generator=torch.Generator().manual_seed(0)) * 2 + 1
    x = x + 0.3 * torch.randn(64, 4, 1, 1, generator=torch.Generator().manual_seed(1))
    source = torch.zeros(4), torch.ones(4)
    mean, variance, *_ = blend(x, *source, 1e-5, Belief(1 / 64, 0.1))
    assert (mean > 0.7).all()
    assert (variance > 3).all()
    mean, variance, *_ = blend(x, *source, 1e-5, CAUTIOUS)
    assert torch.equal(mean, source[0])


def test_a_variance_that_falls_is_followed_as_far_as_one_that_rises():
    x = torch.randn(64, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    for factor in (0.01, 100.0):
        _, variance, *_ = blend(x * math.sqrt(factor), torch.zeros(4), torch.ones(4), 1e-5, Belief(1 / 64, 0.1))
        assert (variance / factor).log().abs().max() < 0.3


def test_gradients_flow_through_the_batch_s_part():
    """As through statistics that are mixed in these shares, which are taken as given."""
    layer = nn.BatchNorm2d(3).double().eval()
    norms.install_statistics(layer, "auto", 1.0)
    layer.stream.belief = Belief(0.1)
    x = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 1.5
    x.requires_grad_()
    weight = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((layer(x) * weight).sum(), x)
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    got_mean, got_variance = (v.detach() for v in blend(x, *norms._source(layer), layer.eps, Belief(0.1))[:2])
    mean = mean * (got_mean / mean).mean().detach()
    eps = layer.eps
    of_variance = ((got_variance + eps) / (1 + eps)).log().mean() / ((variance + eps) / (1 + eps)).log().mean()
    variance = (1 + eps) ** (1 - of_variance.detach()) * (variance + eps) ** of_variance.detach() - eps
    y = (x - mean.view(1, 3, 1, 1)) / (variance + layer.eps).sqrt().view(1, 3, 1, 1)
    (expected,) = torch.autograd.grad((y * weight).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_it_costs_one_pass_more_two_if_something_is_learned_and_none_without_batch_norm():
    assert TENT(make_network("image_bn"), statistics="auto").step(X).info["forwards"] == 3
    assert BNAdapt(make_network("image_bn"), statistics="auto").step(X).info["forwards"] == 2
    large = make_batch("image_bn", 33, 0)
    assert [len(part) for part in shares.probes(large)] == [17, 16]
    assert BNAdapt(make_network("image_bn"), statistics="auto").step(large).info["forwards"] == 2
    for kind in ("image_gn", "vit_ln"):
        adapter = TENT(make_network(kind), statistics="auto")
        assert adapter.step(X).info["forwards"] == 1
        assert torch.equal(adapter(X), [plain := TENT(make_network(kind)), plain(X), plain(X)][-1])


def test_what_the_source_network_finds_is_carried_over(monkeypatch):
    """The first pass is the cautious one, the second settles the shares; teacher and student follow what it found."""
    known, carried, blended, of = [], [], shares.blend, shares.Correction.of
    monkeypatch.setattr(shares, "blend", lambda *args: known.append(args[-1]) or blended(*args))
    monkeypatch.setattr(shares.Correction, "of", lambda self, *args: carried.append(self) or of(self, *args))
    adapter = DSS(make_network("image_bn"), statistics="auto", views=2, augmentation_threshold=1.0)
    adapter(X)
    first, rest = known[:2], known[2:]  # there are two layers
    assert first == [CAUTIOUS, CAUTIOUS]
    assert len(rest) == 2
    assert rest[0] is rest[1]
    assert 1 / 8 - 1e-6 <= rest[0].likeness.item() < 1
    assert 0 < rest[0].doubt.item() <= shares.DOUBT
    assert len(carried) >= 6
    assert len({id(correction) for correction in carried}) == 2, "one for each layer"


def test_a_correction_in_numbers():
    """Batch 1 and 4, wanted 5 and 16: two deviations more, four times the variance; of -1 and 1 that is 1 and 4."""
    correction = shares.Correction.between(
        (torch.ones(1), torch.tensor([4.0])), (torch.tensor([5.0]), torch.tensor([16.0])), 0.0, 8
    )
    assert correction == (2, 4, 8)
    assert correction.of(-torch.ones(1), torch.ones(1), 0.0) == (1, 4)


def test_weights_that_only_scale_and_move_activations_change_nothing():
    """The source's statistics do not belong to them, and a model that learns must not get worse by that."""
    network = make_network("image_bn").double()
    adapter = TENT(network, statistics="auto", lr=0.0)
    x = make_batch("image_bn", 64, 1).double() * 0.3
    before = adapter(x)
    with torch.no_grad():
        adapter.network.conv1.weight.mul_(3)
        adapter.network.conv1.bias.mul_(3).add_(2)
        adapter.network.bn1.eps *= 9
    torch.testing.assert_close(adapter(x), before, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(before, adapter.source(x), atol=1e-2), "the statistics are not the source's"


def test_the_first_single_image_is_predicted_as_by_the_source():
    network = make_network("image_bn")
    x = make_batch("image_bn", 1, 3)
    torch.testing.assert_close(BNAdapt(network, statistics="auto")(x), Source(network)(x), atol=1e-5, rtol=1e-5)


def test_what_recent_images_still_count():
    """A window of 8 has room for 5 beside 3, and for none beside 8; what was seen of 2 only counts whole beside 6."""
    assert shares.WINDOW == 8
    sums = torch.tensor([10.0, 20.0])  # a number of images, and a sum over them
    assert shares.beside(sums, 3).tolist() == [5, 10]
    assert shares.beside(sums, 8).tolist() == shares.beside(sums, 200).tolist() == [0, 0]
    assert shares.beside(sums / 5, 1).tolist() == pytest.approx([2 * 7 / 8, 4 * 7 / 8])
    assert shares.beside(torch.zeros(2), 1).tolist() == [0, 0]


def test_images_one_by_one_are_known_as_well_as_in_a_batch():
    """Sums over four single images are those of the four."""
    layer = nn.BatchNorm2d(3).double().eval()
    norms.install_statistics(layer, "auto", 1.0)
    x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 1.5
    together = shares.Gathered.of(x, *norms._source(layer), layer.eps)
    mean, variance = together.statistics()
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=0))
    parts = [shares.Gathered.of(image[None], *norms._source(layer), layer.eps).rows for image in x]
    torch.testing.assert_close(sum(parts), together.rows)


def test_single_images_of_a_shifted_domain_are_adapted_to():
    """Images with little contrast, one by one: the source model fails on them."""
    data = Data(domains=("contrast",), images=120, batch=1)
    adapter, wrong, source_wrong = BNAdapt(embedded_model(), statistics="auto"), 0, 0
    for batch in open_stream(data):
        wrong += int(adapter(batch.x).argmax(1) != batch.y)
        source_wrong += int(adapter.source(batch.x).argmax(1) != batch.y)
    assert source_wrong > 100
    assert wrong < source_wrong - 20


@pytest.mark.parametrize("method", [BNAdapt, TENT])
def test_a_large_batch_knows_nothing_of_what_came_before(method):
    adapter, fresh = (method(make_network("image_bn"), statistics="auto", **LEARNS_NOTHING[method]) for _ in range(2))
    for x in make_stream("image_bn"):
        adapter(x * 0.3)
    assert not torch.equal(adapter.predict(X[:2]), fresh.predict(X[:2])), "a small one does"
    assert torch.equal(adapter(X), fresh(X))


def test_recent_images_are_state_that_is_not_taken_back():
    """Prediction leaves it, a saved adapter goes on with it, `learned` is without it, a reset begins anew."""
    adapter = TENT(make_network("image_bn"), statistics="auto")
    for x in make_stream("image_bn"):
        adapter(x[:2])
    before = adapter.stream_recent.clone()
    assert 2 < before[0] <= shares.WINDOW
    adapter.predict(X)
    assert torch.equal(adapter.stream_recent, before)
    assert not any(name.endswith(norms.RECENT) for name in adapter.learned())
    other = TENT(make_network("image_bn"), statistics="auto")
    other.load_state_dict(adapter.state_dict())
    assert torch.equal(other(X[:2]), adapter(X[:2]))
    shared = TENT(make_network("image_bn"), statistics="auto")
    shared.set_stream_state(adapter.stream_state())
    assert torch.equal(shared(X[2:4]), adapter(X[2:4]))
    adapter.reset()
    assert all(not value.any() for name, value in adapter.named_buffers() if name.endswith(norms.RECENT))


def test_a_refused_batch_leaves_nothing_behind():
    adapter, fresh = (TENT(make_network("image_bn"), statistics="auto") for _ in range(2))
    with pytest.raises(InputError):
        adapter(X * math.nan)
    assert adapter.model.bn1.stream.belief is CAUTIOUS
    for x in make_stream("image_bn"):
        assert torch.equal(adapter(x), fresh(x))
        assert adapter.model.bn1.stream.belief is CAUTIOUS


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_dead_sensor_breaks_nothing(value):
    """Constant images: all is finite, and the next large batch is predicted as if they had never been there."""
    adapter, fresh = (BNAdapt(make_network("image_bn"), statistics="auto") for _ in range(2))
    learner = TENT(make_network("image_bn"), statistics="auto")
    for _ in range(5):
        adapter(torch.full_like(X, value))
        learner(torch.full_like(X, value))
    assert torch.equal(adapter(X), fresh(X))
    assert learner(X).isfinite().all()


def test_a_state_of_an_earlier_version_remembers_no_images():
    adapter, used = (TENT(make_network("image_bn"), statistics="auto") for _ in range(2))
    for x in make_stream("image_bn"):
        adapter(x)
        used(x[:3])
    earlier = {name: value for name, value in adapter.state_dict().items() if not name.endswith(norms.RECENT)}
    used.load_state_dict(earlier)
    assert not any(value.any() for name, value in used.named_buffers() if name.endswith(norms.RECENT))
    assert torch.equal(used(X), adapter(X))
    kept = adapter.stream_state()
    kept["tensors"] = {name: value for name, value in kept["tensors"].items() if not name.endswith(norms.RECENT)}
    used.check_stream_state(kept)
    used.set_stream_state(kept)
    assert torch.equal(used.predict(X), adapter.predict(X))
