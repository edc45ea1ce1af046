"""Many views at a time are those that would be made one after the other."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ctta.base.randomness import Randomness
from ctta.core.views import CloudViews, Draw, ImageViews, Views, many_views

IMAGES = torch.rand(5, 3, 20, 20, generator=torch.Generator().manual_seed(0))
CLOUDS = torch.rand(5, 30, 3, generator=torch.Generator().manual_seed(0)) - 0.5
MAKERS = [
    *((ImageViews(draw, clean=clean), IMAGES) for draw in ("batch", "sample") for clean in (False, True)),
    (ImageViews("sample"), IMAGES[:, :1]),
    *((CloudViews(draw), CLOUDS) for draw in ("batch", "sample")),
    (CloudViews("sample", scale=0.2, jitter=0.05), CLOUDS),
]


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("views", "x"), MAKERS, ids=lambda value: None if isinstance(value, Tensor) else repr(value))
def test_many_views_are_those_made_one_by_one(views: Views, x: Tensor, paired: bool) -> None:
    def randoms() -> list[Randomness]:
        random = Randomness(0, 1, torch.device("cpu"))
        return list(itertools.islice(random.antithetic() if paired else itertools.repeat(random), 3))

    expected = torch.cat([views(x, random) for random in randoms()])
    found = many_views(views, x, randoms())
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert not torch.equal(found[:5], found[5:10])


@pytest.mark.parametrize("draw", ["batch", "sample"])
def test_all_at_once_as_on_an_accelerator(draw: Draw) -> None:
    views = ImageViews(draw)
    one, other = (Randomness(0, 1, torch.device("cpu")) for _ in range(2))
    expected = torch.cat([views(IMAGES, one) for _ in range(3)])
    torch.testing.assert_close(views.at_once(IMAGES, [other] * 3), expected, atol=1e-6, rtol=1e-6)


def test_views_of_ones_own_may_know_one_at_a_time_alone() -> None:
    def shifted(x: Tensor, random: Randomness) -> Tensor:
        return x + random.uniform(0, 1, 1).to(x)

    one, other = (Randomness(0, batch, torch.device("cpu")) for batch in (1, 2))
    found = many_views(shifted, CLOUDS, [one, other])
    again = [shifted(CLOUDS, Randomness(0, batch, torch.device("cpu"))) for batch in (1, 2)]
    assert torch.equal(found, torch.cat(again))
