"""The average over augmented views, and the presets that decide how many there are."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta import ConfigError
from ctta.base.randomness import Randomness
from ctta.core import statistics as norms
from ctta.core.shares import DOUBT
from ctta.core.teacher import FAST_PRESET, confidence_weight
from ctta.testing.networks import make_batch, make_network


def double(x, random):
    """A view that is easy to follow."""
    return 2 * x


def test_the_plain_batch_has_its_share_in_the_average():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double()
    x = torch.rand(5, 3, 2, 2, dtype=torch.float64) / 2
    plain, view = model(x).detach(), model(2 * x).detach()
    for share in (0.0, 0.25, 1.0):
        adapter = ctta.CoTTA(
            model, ctta.CoTTA.config_type(views=3, augmentation_threshold=1.0, unaugmented_weight=share), views=double
        )
        torch.testing.assert_close(adapter(x), share * plain + (1 - share) * view)


def test_the_share_is_weighed_by_how_much_surer_the_teacher_is_without_views():
    shares = [float(confidence_weight(torch.tensor(0.8), torch.tensor(views))) for views in (0.95, 0.8, 0.7, 0.6, 0.2)]
    assert shares == pytest.approx([0, 0.15, 0.5, 0.85, 1], abs=1e-5)
    assert confidence_weight(torch.tensor(1.0), torch.tensor(0.9)) == 1
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double()
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.zero_()
        model[1].weight[0, 0] = -1.0  # a view doubles the first pixel, so the first class is less likely in it
        model[1].bias[0] = 3.0
    x = torch.full((2, 3, 2, 2), 0.4, dtype=torch.float64)

    def sure(logit):
        return math.exp(logit) / (math.exp(logit) + 3)

    share = 0.15 + 0.7 * (sure(2.6) - sure(2.2)) / (1 - sure(2.6))
    assert 0.1 < share < 0.9
    adapter = ctta.CoTTA(model, preset="fast", augmentation_threshold=1.0, views=double)
    assert adapter(x)[:, 0].tolist() == pytest.approx([share * 2.6 + (1 - share) * 2.2] * 2)


def test_a_variant_goes_by_the_input_and_joins_any_preset():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    small, large = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 80, 80)
    for x, base in ((small, "cifar10"), (large, "imagenet")):
        adapter = ctta.DSS(model, preset="fast")
        adapter(x)
        assert adapter.preset == f"{base}+fast"
        assert adapter.config.asdict() == {**ctta.DSS(model, preset=base).config.asdict(), **FAST_PRESET}
        adapter.reset()
        adapter(x)
        assert adapter.preset == f"{base}+fast"
    named = ctta.DSS(model, preset="cifar100+fast", views=3)
    assert (named.config.restore, named.config.augmentation_threshold, named.config.views, named.config.draw) == (
        0.01,
        1.0,
        3,
        "sample",
    )
    paper = ctta.DSS(model, preset="paper").config
    assert ctta.DSS(model).config == paper.replace(statistics="auto")
    assert ctta.DSS(model, statistics="mixed").config == paper.replace(statistics="mixed")


@pytest.mark.parametrize("name", ["len", "cifar10+len", "cifar+fast", "fast+cifar10"])
def test_unknown_presets(name):
    with pytest.raises(ConfigError, match="has no preset"):
        ctta.DSS(nn.Linear(3, 4), preset=name)
    with pytest.raises(ConfigError, match="has no preset 'fast'"):
        ctta.Source(nn.Linear(3, 4), preset="fast")


def test_every_second_draw_is_the_opposite_of_the_one_before():
    first, opposite, third, fourth = itertools.islice(Randomness(1, 2, torch.device("cpu")).antithetic(), 4)
    drawn = [one.uniform(-2.0, 6.0, 5) for one in (first, opposite, third, fourth)]
    torch.testing.assert_close(drawn[0] + drawn[1], torch.full((5,), 4.0, dtype=torch.float64))
    torch.testing.assert_close(drawn[2] + drawn[3], torch.full((5,), 4.0, dtype=torch.float64))
    assert not torch.equal(drawn[0], drawn[2])
    plain = Randomness(1, 2, torch.device("cpu"))
    assert torch.equal(plain.uniform(-2.0, 6.0, 5), drawn[0])
    more = opposite.uniform(0.0, 1.0, 3)  # nothing is left to be the opposite of
    assert ((more >= 0) & (more <= 1)).all()


def test_opposite_views_are_mirrored_and_not():
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5))
    flips: list[Tensor] = []

    def flip_only(batch: Tensor, random: Randomness) -> Tensor:
        flips.append(random.uniform(0, 1, len(batch)) < 0.5)
        return batch

    ctta.CoTTA(model, preset="cifar10", augmentation_threshold=1.0, views=flip_only, antithetic=True).step(x)
    assert len(flips) == 32
    assert all(torch.equal(one, ~other) for one, other in zip(flips[::2], flips[1::2], strict=True))


def test_former_words_are_named():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    for old, new in (("gate", "augmentation_threshold"), ("opposite", "antithetic"), ("plain", "unaugmented_weight")):
        with pytest.raises(ConfigError, match=f"'{old}' of CoTTAConfig is now called '{new}'"):
            ctta.CoTTA(model, **{old: 1.0})
    for old in ("lean", "weighed", "cifar10+lean"):
        with pytest.raises(ConfigError, match="is now called 'fast'"):
            ctta.DSS(model, preset=old)
    with pytest.raises(ConfigError, match="'weighed' is now called 'confidence'"):
        ctta.DSS(model, unaugmented_weight="weighed")
    with pytest.raises(ConfigError, match="'told' is now called 'known'"):
        ctta.DSS(model, boundaries="told")


@pytest.mark.parametrize(("doubt", "views"), [(0.89 * DOUBT, 2), (0.91 * DOUBT, 0), (None, 2)])
def test_with_auto_statistics_views_are_averaged_only_if_the_domain_has_shifted(doubt, views, monkeypatch):
    """Without a belief, which other statistics have none of, confidence alone decides."""
    monkeypatch.setattr(norms, "doubt", lambda module: None if doubt is None else torch.tensor(doubt))
    model, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    settings = {"statistics": "auto", "views": 2}
    assert ctta.DSS(model, augmentation_threshold=0.99, **settings).step(x).info["views"] == views
    assert ctta.DSS(model, augmentation_threshold=1.0, **settings).step(x).info["views"] == 2
    assert ctta.DSS(model, augmentation_threshold=0.0, **settings).step(x).info["views"] == 0


def test_the_doubt_is_that_of_auto_statistics():
    model, x = make_network("image_bn"), make_batch("image_bn", 8, 0)
    seen = []

    class Watched(ctta.CoTTA):
        def pseudo_label(self, x):
            seen.append("doubt" in self.observed)
            return super().pseudo_label(x)

    for statistics in ("auto", "batch", "mixed"):
        Watched(model, statistics=statistics, augmentation_threshold=0.9).step(x)
    assert seen == [True, False, False]
