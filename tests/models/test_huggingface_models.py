"""A classifier in transformers' format, from a local folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ctta.models import load
from ctta.models.load import find


def test_a_transformers_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=7)
    network = transformers.ResNetForImageClassification(config).eval()
    network.save_pretrained(tmp_path)
    images = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"shortest_edge": 48}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    x = torch.rand(2, 3, 48, 48)
    assert find(f"hf:{tmp_path}").input_size == 48
    assert torch.equal(load(f"hf:{tmp_path}", weights="pretrained")(x), network((x - 0.5) / 0.5).logits)
