"""Images corrupted on the fly: the same in any batch, part and order, with and without a cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctta.base.errors import InputError
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data
from small_stream import DOMAINS, IMAGES, LABELS, make


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
    with pytest.raises(InputError, match="one label per image"):
        corrupted_stream(IMAGES, LABELS[:3], DOMAINS, Data(batch=4))


def test_rows_in_any_order_are_the_same_samples():
    for domain in make().domains:
        whole, labels = domain.load(np.arange(23))
        some, some_labels = domain.load(np.array([7, 2, 19]))
        assert np.array_equal(some, whole[[7, 2, 19]])
        assert np.array_equal(some_labels, labels[[7, 2, 19]])
