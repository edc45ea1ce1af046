"""The entry of a model: the shape of its input, and how it is built."""

from __future__ import annotations

from torch import nn

from ctta.models.entry import ModelEntry


def entry(**changes: object) -> ModelEntry:
    fields = {"builder": lambda num_classes: nn.Linear(2, num_classes), "num_classes": 5, "mean": (0.0,), "std": (1.0,)}
    return ModelEntry(**{**fields, "input_size": 8, "note": "", "source": "", **changes})  # type: ignore[arg-type]


def test_input_shapes_and_classes() -> None:
    assert entry().input_shape == (3, 8, 8)
    assert entry(clouds=True).input_shape == (8, 3)
    assert [entry().build(classes).out_features for classes in (None, 7)] == [5, 7]
