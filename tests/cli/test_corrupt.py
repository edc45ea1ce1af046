"""`ctta corrupt`: the public formats."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from command_line import ctta


@pytest.fixture
def clean(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "clean.npz", images=images, labels=np.arange(6))
    return tmp_path / "clean.npz"


def test_the_public_formats(tmp_path, clean):
    code, _, err = ctta("corrupt", clean, tmp_path / "out", "--corruption", "fog,contrast")
    assert code == 0, err
    assert np.load(tmp_path / "out" / "fog.npy").shape == (30, 32, 32, 3)
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == list(range(6)) * 5
    (tmp_path / "tree" / "n01").mkdir(parents=True)
    Image.fromarray(np.zeros((224, 224, 3), np.uint8)).save(tmp_path / "tree" / "n01" / "a.png")
    code, out, err = ctta("corrupt", tmp_path / "tree", tmp_path / "c", "--corruption", "fog", "--severity", "5", "-q")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "c" / "fog" / "5" / "n01" / "a.JPEG").is_file()
    code, _, err = ctta("corrupt", tmp_path / "none", tmp_path / "d", "--corruption", "fogg")
    assert code == 2
    assert "Did you mean 'fog'?" in err


def test_a_corrupted_set_runs_as_a_stream(tmp_path, clean, spec):
    assert ctta("corrupt", clean, tmp_path / "c", "--corruption", "fog", "-q")[0] == 0
    path = spec(data={"dataset": "cifar10_c", "path": str(tmp_path / "c"), "domains": ["fog"], "batch": 3})
    code, out, err = ctta("run", path, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    assert {row["label"] for row in json.loads(out)["rows"]} == {"Source", "TENT"}
