"""Streams: the same each time, cheap to enter half-way, bounded in memory."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
import torch

from ctta import InputError
from ctta.base.errors import ConfigError
from ctta.data import datasets as streams
from ctta.data.corrupted import corrupted_stream
from ctta.data.corruptions import corrupt
from ctta.data.dataset import Data, DataSet
from ctta.data.datasets import DATASETS
from ctta.data.datasets.embedded import fashion_mnist
from ctta.data.stream import Stream

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(23) % 5
DOMAINS = [("gaussian_noise", 5), ("fog", 3), ("contrast", 1)]


def make(**changes) -> Stream:
    return corrupted_stream(IMAGES, LABELS, DOMAINS, Data(**{"batch": 10, **changes}))


def key(batch):
    return (batch.domain, batch.severity, batch.position, batch.step, batch.first, batch.last)


def test_batches_domains_and_marks():
    stream = make()
    assert len(stream) == 9  # three batches of 10, 10 and 3 a domain
    batches = list(stream)
    assert [len(batch.x) for batch in batches] == [10, 10, 3] * 3
    assert [key(batch) for batch in batches[:4]] == [
        ("gaussian_noise", 5, 0, 0, True, False),
        ("gaussian_noise", 5, 0, 1, False, False),
        ("gaussian_noise", 5, 0, 2, False, True),
        ("fog", 3, 1, 3, True, False),
    ]
    x = batches[4].x
    assert (x.shape, x.dtype) == ((10, 3, 32, 32), torch.float32)
    assert x.min() >= 0
    assert x.max() <= 1
    expected = corrupt(IMAGES[10:20], "fog", severity=3, preset="cifar", seed=0, first=10)
    assert torch.equal((x * 255).round().to(torch.uint8).permute(0, 2, 3, 1), torch.from_numpy(expected))
    assert batches[4].y.tolist() == LABELS[10:20].tolist()


def test_a_stream_is_the_same_each_time():
    stream = make()
    for left, right in zip(stream, stream, strict=True):
        assert key(left) == key(right)
        assert torch.equal(left.x, right.x)
        assert torch.equal(left.y, right.y)


@pytest.mark.parametrize("start", [0, 1, 2, 3, 5, 8, 9])
def test_start_is_exact_and_makes_nothing_before_it(start, monkeypatch):
    expected = list(make())[start:]
    made = []

    def counted(images, *args, **kwargs):
        made.append(len(images))
        return corrupt(images, *args, **kwargs)

    monkeypatch.setattr("ctta.data.corrupted.corrupt", counted)
    found = list(make().batches(start))
    assert [key(batch) for batch in found] == [key(batch) for batch in expected]
    assert all(torch.equal(a.x, b.x) for a, b in zip(found, expected, strict=True))
    assert len(made) == len(expected)
    assert make().position(start) == start // 3


def test_a_stream_can_begin_anywhere_in_the_data(tmp_path):
    whole = torch.cat([batch.x for batch in make(batch=23)])
    part = list(make(first=7, images=9))
    assert [len(batch.x) for batch in part] == [9] * 3
    for number, batch in enumerate(part):
        assert torch.equal(batch.x, whole[23 * number + 7 : 23 * number + 16]), "an image is the same in any part"
        assert batch.y.tolist() == LABELS[7:16].tolist()
    cached = list(make(first=7, images=9, cache=str(tmp_path)))
    assert all(torch.equal(a.x, b.x) for a, b in zip(part, cached, strict=True))
    start = list(make(images=9, cache=str(tmp_path)))
    assert torch.equal(start[0].x, whole[:9]), "parts of one size do not share a cache"
    assert sum(len(batch.x) for batch in make(first=20)) == 9
    with pytest.raises(InputError, match="There are 23 samples"):
        make(first=23)


def test_images_do_not_depend_on_the_batch_size():
    small = torch.cat([batch.x for batch in make(batch=4)])
    large = torch.cat([batch.x for batch in make(batch=23)])
    assert torch.equal(small, large)
    other = torch.cat([batch.x for batch in make(seed=1)])
    assert not torch.equal(small, other)


def test_a_cache_gives_the_same_images_and_is_made_once(tmp_path, monkeypatch):
    expected = [batch.x for batch in make()]
    assert all(torch.equal(a, b.x) for a, b in zip(expected, make(cache=str(tmp_path)), strict=True))
    assert len(list(tmp_path.glob("*.npy"))) == 3
    monkeypatch.setattr("ctta.data.corrupted.corrupt", None)  # would fail if it were called
    assert all(torch.equal(a, b.x) for a, b in zip(expected, make(cache=str(tmp_path)), strict=True))


def test_severity_zero_is_clean():
    stream = corrupted_stream(IMAGES, LABELS, [("clean", 0)], Data(batch=23))
    assert torch.equal(
        (next(iter(stream)).x * 255).round().to(torch.uint8).permute(0, 2, 3, 1), torch.from_numpy(IMAGES)
    )


def test_bad_arrays():
    with pytest.raises(InputError, match="uint8"):
        corrupted_stream(IMAGES / 255, LABELS, DOMAINS, Data(batch=4))
    with pytest.raises(InputError, match="one label an image"):
        corrupted_stream(IMAGES, LABELS[:3], DOMAINS, Data(batch=4))
    with pytest.raises(ConfigError, match="at least 1"):
        make(batch=0)


def test_the_embedded_set():
    images, labels, classes = fashion_mnist()
    assert (images.shape, images.dtype) == ((10_000, 32, 32, 3), np.uint8)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert len(classes) == 10
    assert (images[:, :2] == 0).all()
    assert (images[..., 0] == images[..., 2]).all()


def test_every_data_set_has_its_line():
    modules = [
        importlib.import_module(f"ctta.data.datasets.{module.name}")
        for module in pkgutil.iter_modules(streams.__path__)
    ]
    written = [value for module in modules for value in vars(module).values() if isinstance(value, DataSet)]
    assert len(written) > 3
    assert {id(dataset) for dataset in written} == {id(dataset) for dataset in DATASETS.values()}


def test_rows_in_any_order_are_the_same_samples():
    for domain in make().domains:
        whole, labels = domain.load(np.arange(23))
        some, some_labels = domain.load(np.array([7, 2, 19]))
        assert np.array_equal(some, whole[[7, 2, 19]])
        assert np.array_equal(some_labels, labels[[7, 2, 19]])
