"""Orders by hand, and domains made of domains."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ctta.base.errors import ConfigError, InputError
from ctta.data.combine import (
    blend,
    both,
    known,
    long_tail,
    of_one_size,
    places,
    reordered,
    replaced,
    spread,
    take_turns,
)
from ctta.data.dataset import DataSet
from ctta.data.stream import Domain


def test_dirichlet_shares_by_hand():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    apart = spread(labels, np.array([[1.0, 0.0], [0.0, 1.0]]), np.random.default_rng(0))
    assert sorted(apart[:4]) == [0, 2, 4, 6]
    assert sorted(apart[4:]) == [1, 3, 5, 7]
    # Three of class 0 and one of class 1 in the first slot, the rest in the second.
    uneven = spread(labels, np.array([[0.75, 0.25], [0.25, 0.75]]), np.random.default_rng(0))
    assert Counter(labels[uneven[:4]].tolist()) == {0: 3, 1: 1}
    assert sorted(uneven) == list(range(8))
    nothing = spread(labels, np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), np.random.default_rng(0))
    assert labels[nothing].tolist() == [0] * 4 + [1] * 4


def test_turns():
    turns = list(take_turns([7, 4, 5], 2, 3, np.random.default_rng(0)))
    for which, size in enumerate([7, 4, 5]):
        mine = [(start, stop) for one, start, stop in turns if one == which]
        assert [start for start, _ in mine] == [0, *(stop for _, stop in mine[:-1])], "goes on where it ended"
        assert mine[-1][1] == size
        assert all(2 <= stop - start <= 3 for start, stop in mine[:-1])
    for number in range(1, len(turns)):
        if turns[number][0] == turns[number - 1][0]:
            assert {which for which, _, _ in turns[number:]} == {turns[number][0]}, "no other is left"


def test_clouds_of_one_size():
    clouds = np.arange(2048, dtype=np.float32).reshape(1, 2048, 1).repeat(3, axis=2)
    assert np.array_equal(of_one_size(clouds[:, :1024]), clouds[:, :1024])
    assert of_one_size(clouds).shape == (1, 1024, 3)
    assert of_one_size(clouds)[0, [0, -1], 0].tolist() == [0, 2047]
    few = of_one_size(clouds[:, :512])[0, :, 0]
    assert sorted(set(Counter(few.tolist()).values())) == [2], "each twice"
    images = np.zeros((2, 7, 7, 3), np.uint8)
    assert of_one_size(images) is images


def test_long_tails_by_hand():
    # Factors 1, 1/2 and 1/4 for ranks 0, 1 and 2.
    assert long_tail(np.array([8, 8, 8]), np.array([0, 2, 1]), 4.0).tolist() == [8, 2, 4]
    assert long_tail(np.array([8, 8]), np.array([1, 0]), 100.0).tolist() == [1, 8]
    assert long_tail(np.array([5]), np.array([0]), 10.0).tolist() == [5]


def test_places():
    assert list(places(3, None)) == [0, 1, 2]
    assert sorted(places(9, 4)) == list(range(9))
    assert list(places(9, 4)) == list(places(9, 4)) != list(places(9, 4, turn=1))


def grey(name, severity, labels, base=0, corrupt=None):
    """Return a domain whose sample i is an image of the grey value `base + i`."""

    def read(rows):
        return (base + rows).astype(np.uint8)[:, None, None, None].repeat(3, axis=3)

    return Domain(name, severity, np.array(labels), read, corrupt)


def shades(domain, rows):
    samples, labels = domain.load(np.array(rows))
    return samples[:, 0, 0, 0].tolist(), labels.tolist()


def test_reordered_and_blended_domains_by_hand():
    one, two = grey("a", 5, [0, 1, 2]), grey("b", 3, [7, 8, 9], base=50)
    turned = reordered(one, np.array([2, 0]))
    assert (turned.name, turned.severity, len(turned), turned.labels.tolist()) == ("a", 5, 2, [2, 0])
    assert shades(turned, [1, 0, 1]) == ([0, 2, 0], [0, 2, 0])
    mixture = blend("mixed", 5, (one, two), np.array([1, 0, 1, 0]), np.array([2, 1, 0, 0]))
    assert mixture.labels.tolist() == [9, 1, 7, 0]
    assert shades(mixture, range(4)) == ([52, 1, 50, 0], [9, 1, 7, 0])
    assert shades(mixture, [3, 2]) == ([0, 50], [0, 7])


def test_replaced_samples_by_hand():
    asked = []
    domain = grey("a", 5, [4, 5, 6])
    spied = Domain("a", 5, domain.labels, lambda rows: asked.append(rows.tolist()) or domain.read(rows))
    made = replaced(spied, np.array([2, -1, 0, -8]), lambda number, like: np.full_like(like, 100 + number))
    assert (made.name, made.severity, made.labels.tolist()) == ("a", 5, [6, -1, 4, -1])
    assert shades(made, [3, 2, 1, 0]) == ([107, 0, 100, 2], [-1, 4, -1, 6])
    assert shades(made, [1, 3]) == ([100, 107], [-1, -1])
    assert asked == [[0, 2], [0]], "what is replaced is not read, but for one sample if its form is not known"


def test_one_corruption_after_another_by_hand():
    clean, noise = (
        grey("clean", 0, [4, 5]),
        grey("noise", 2, [4, 5], corrupt=lambda samples, rows: samples + np.uint8(100)),
    )
    dataset = DataSet("Stored", "", lambda data, pairs: None)
    assert both(clean, grey("fog", 0, [4, 5]), dataset) is clean
    mixed = both(grey("fog", 3, [4, 5]), noise, dataset)
    assert (mixed.name, mixed.severity, len(mixed), mixed.labels.tolist()) == ("fog>noise", 5, 2, [4, 5])
    assert shades(mixed, [1]) == ([101], [5])
    with pytest.raises(ConfigError, match="those of Stored are stored"):
        both(clean, grey("fog", 1, [4, 5]), dataset)


def test_unknown_labels_are_reported():
    assert known(grey("a", 5, [0, 1])).tolist() == [0, 1]
    with pytest.raises(InputError, match="some samples of a have none"):
        known(grey("a", 5, [0, -1]))
