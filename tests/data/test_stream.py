"""Streams: the same each time, and cheap to start anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctta.base.errors import ConfigError
from ctta.data.corruptions import corrupt
from ctta.data.stream import Domain, answer, to_tensor
from small_stream import IMAGES, LABELS, make


def key(batch):
    return (batch.domain, batch.severity, batch.position, batch.step, batch.first, batch.last)


def test_batches_domains_and_marks():
    stream = make()
    assert len(stream) == 9  # three batches of 10, 10 and 3 per domain
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


def test_a_domain_gives_its_rows_in_any_order():
    images = np.arange(4, dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    domain = Domain("fog", 5, np.array([3, 1, 2, 0]), images.__getitem__)
    samples, labels = domain.load(np.array([2, 0]))
    assert (len(domain), samples[:, 0, 0, 0].tolist(), labels.tolist()) == (4, [2, 0], [2, 3])


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


def test_a_batch_holds_a_sample():
    with pytest.raises(ConfigError, match="at least 1"):
        make(batch=0)


def test_answers_are_among_the_scored_logits():
    logits = torch.tensor([[1.0, 2.0, 9.0], [-3.0, -2.0, -1.0]])
    assert answer(logits).tolist() == [2, 2]
    assert answer(logits, (0, 1)).tolist() == [1, 1]


def test_samples_become_float_tensors():
    image = to_tensor(np.array([[[[0, 51, 255]]]], np.uint8))
    assert image.shape == (1, 3, 1, 1)
    assert image.flatten().tolist() == pytest.approx([0, 0.2, 1])
    points = np.arange(6, dtype=np.float64).reshape(1, 2, 3)
    assert to_tensor(points).dtype == torch.float32
    assert to_tensor(points).tolist() == points.tolist()
