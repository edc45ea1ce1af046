"""Records by hand, and how often the host waits for the device."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ctta import DSS, Source
from ctta.data.corrupted import corrupted_stream
from ctta.data.dataset import Data
from ctta.running.runner import evaluate
from tiny import network


class ByBrightness(nn.Module):
    """Predicts class 1 for bright images and class 0 for dark ones, with confidence e/(1 + e)."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2)

    def forward(self, x):
        bright = (x.mean((1, 2, 3)) > 0.5).float()
        return torch.stack([1 - bright, bright], 1) + 0 * self.head(x[:, 0, 0, :1])


def test_records_by_hand():
    images = np.zeros((5, 32, 32, 3), np.uint8)
    images[2:] = 255
    stream = corrupted_stream(images, np.array([0, 1, 1, 1, 0]), [("clean", 0)], Data(batch=3))
    found = list(evaluate(Source(ByBrightness()), stream))
    first, second = (evaluated.record for evaluated in found)
    assert (first.n, first.wrong, first.step, first.position) == (3, 1, 0, 0)
    assert (second.n, second.wrong, second.step, second.position) == (2, 1, 1, 0)
    confidence = float(np.e / (1 + np.e))  # 0.731, bin 10 of 15
    assert first.info["confidence"] == pytest.approx(confidence)
    counts, sums, right = zip(*first.bins, strict=True)
    assert (counts[10], right[10], sum(counts)) == (3, 2, 3)
    assert sums[10] == pytest.approx(3 * confidence)
    assert first.selected is None
    assert [evaluated.prediction.tolist() for evaluated in found] == [[0, 0, 1], [1, 1]]
    assert found[0].confidence.tolist() == pytest.approx([confidence] * 3)
    assert found[0].selected is None
    json.dumps(first.info)


def test_labels_that_are_not_known_are_not_counted():
    images = np.zeros((4, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.array([0, 1, -1, 1]), [("clean", 0)], Data(batch=2))
    first, second = (evaluated.record for evaluated in evaluate(Source(ByBrightness()), stream))
    assert (first.n, first.wrong, first.labelled, first.scored) == (2, 1, None, 2)
    assert (second.n, second.wrong, second.labelled, second.scored) == (2, 1, 1, 1)
    assert sum(n for n, _, _ in second.bins) == 1
    nothing = corrupted_stream(images, np.full(4, -1), [("clean", 0)], Data(batch=4))
    (third,) = (evaluated.record for evaluated in evaluate(Source(ByBrightness()), nothing))
    assert (third.n, third.wrong, third.labelled, third.scored) == (4, -1, None, 0)
    assert sum(n for n, _, _ in third.bins) == 4, "their confidence is known"


class OnDevice(Tensor):
    """A tensor that pretends to live on a device: reading it on the host is counted."""

    reads: ClassVar[list[str]] = []
    HOST: ClassVar[tuple[str, ...]] = (
        *("item", "tolist", "cpu", "numpy", "__array__", "__bool__", "__float__", "__int__", "__index__", "__iter__"),
        *("nonzero", "masked_select", "unique", "bincount"),
    )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in cls.HOST and isinstance(args[0], OnDevice):
            cls.reads.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("make", [Source, lambda model: DSS(model, views=2)], ids=["source", "dss"])
def test_the_values_of_a_record_come_back_in_one_read(make, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    stream = corrupted_stream(images, np.arange(6), [("fog", 5)], Data(batch=3))
    expected = [evaluated.record for evaluated in evaluate(make(network()), stream)]
    adapter = make(network())
    step = adapter.step

    def on_device(x: Tensor) -> Any:
        found = step(x)
        info, samples = (
            {name: value.as_subclass(OnDevice) for name, value in values.items()}
            for values in (found.info, found.samples)
        )
        return replace(found, logits=found.logits.as_subclass(OnDevice), info=info, samples=samples)

    monkeypatch.setattr(adapter, "step", on_device)
    for evaluated, record in zip(evaluate(adapter, stream), expected, strict=True):
        assert OnDevice.reads == ["tolist"]
        OnDevice.reads.clear()
        assert evaluated.record.same(record)
        assert type(evaluated.prediction) is type(evaluated.confidence) is Tensor
