"""CIFAR-C folders: mapped, equal to corruptions made on the fly, and every kind of broken one refused at once."""

from __future__ import annotations

import numpy as np
import pytest

from ctta import InputError
from ctta.base.errors import ConfigError
from ctta.data.corruptions import corrupt
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(23) % 5
DOMAINS = ("gaussian_noise", "fog", "contrast")


@pytest.fixture
def folder(tmp_path):
    for name in DOMAINS:
        blocks = [corrupt(IMAGES, name, severity=severity, preset="cifar", seed=0) for severity in range(1, 6)]
        np.save(tmp_path / f"{name}.npy", np.concatenate(blocks))
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    return tmp_path


def opened(folder, dataset="cifar10_c", **changes):
    return open_stream(Data(**{"dataset": dataset, "path": str(folder), "domains": DOMAINS, "batch": 10} | changes))


def refusal(folder, **changes):
    with pytest.raises(InputError) as caught:
        opened(folder, **changes)
    return str(caught.value)


def test_files_are_mapped_and_equal_the_corruptions_made_on_the_fly(folder):
    stream = opened(folder, severity=3)
    assert isinstance(stream.domains[0].read.__self__, np.memmap)
    for name, domain in zip(DOMAINS, stream.domains, strict=True):
        images, labels = domain.load(np.array([3, 20, 7]))
        expected = corrupt(IMAGES, name, severity=3, preset="cifar", seed=0)[[3, 20, 7]]
        assert np.array_equal(images, expected)
        assert labels.tolist() == [3, 0, 2]
    assert [len(batch.x) for batch in opened(folder, images=7)] == [7, 7, 7]


def test_labels_once_for_all_severities(folder):
    np.save(folder / "labels.npy", LABELS)
    assert opened(folder).domains[0].load(np.arange(23))[1].tolist() == LABELS.tolist()


def test_all_that_is_wrong_is_said_at_once(folder):
    (folder / "gaussian_noise.npy").unlink()
    whole = (folder / "fog.npy").read_bytes()
    (folder / "fog.npy").write_bytes(whole[: len(whole) // 2])
    np.save(folder / "contrast.npy", np.zeros((5, 4), np.uint8))
    text = refusal(folder)
    for words in (
        "cannot be used as CIFAR-10-C",
        "Missing: gaussian_noise.npy.",
        "fog.npy cannot be read as an array",
        "may be truncated",
        "contrast.npy must be uint8 (5 N, 32, 32, 3), five severities stacked. Got uint8 (5, 4)",
        "Found: contrast.npy, fog.npy, labels.npy.",
        "zenodo.org/records/2535967",
    ):
        assert words in text, text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "is a web page, not an array"),
        (b"", "is empty, not an array"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a git-lfs pointer"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", "cannot be read as an array"),
    ],
)
def test_what_failed_downloads_leave(folder, content, words):
    (folder / "fog.npy").write_bytes(content)
    assert f"{folder / 'fog.npy'} {words}" in refusal(folder)
    (folder / "labels.npy").write_bytes(content)
    assert f"{folder / 'labels.npy'} {words}" in refusal(folder)


def test_the_wrong_set_is_recognised(folder):
    np.save(folder / "labels.npy", np.tile(np.arange(23) * 4, 5))
    assert "goes up to 88: this is CIFAR-100-C. Write `dataset: cifar100_c`" in refusal(folder)
    opened(folder, "cifar100_c")
    np.save(folder / "labels.npy", np.zeros(2000, np.int64))
    assert "this is CIFAR-10-C" in refusal(folder, dataset="cifar100_c")
    np.save(folder / "labels.npy", np.tile(LABELS, 5) * 200)
    assert "must hold 0 to 9. It goes from 0 to 800" in refusal(folder)
    np.save(folder / "labels.npy", np.tile(LABELS, 5) / 2)
    assert "whole numbers" in refusal(folder)


def test_sizes_and_counts(folder):
    np.save(folder / "fog.npy", np.ones((115, 28, 28, 3), np.uint8))
    assert "28 x 28 pixels, not 32 x 32" in refusal(folder)
    np.save(folder / "fog.npy", np.ones((50, 32, 32, 3), np.uint8))
    assert "labels.npy has 115 entries; fog.npy needs 10 or 50" in refusal(folder)
    np.save(folder / "fog.npy", np.ones((51, 32, 32, 3), np.uint8))
    assert "five severities stacked" in refusal(folder)


def test_a_severity_that_was_not_made_is_noticed(folder):
    half = np.load(folder / "fog.npy")
    half[2 * 23 :] = 0
    np.save(folder / "fog.npy", half)
    opened(folder, severity=2)
    assert "fog.npy is black at severity 3" in refusal(folder, severity=3)


def test_there_are_no_clean_images(folder):
    with pytest.raises(ConfigError, match="holds severities 1 to 5 and no clean samples"):
        opened(folder, severity=0)
    with pytest.raises(ConfigError, match="no corruption 'clean'"):
        opened(folder, domains=("clean",))
    with pytest.raises(ConfigError, match="does not use 'preprocessing'"):
        opened(folder, preprocessing="none")


def test_the_fingerprint_is_of_what_the_files_hold(folder, tmp_path_factory):
    before = opened(folder).fingerprint
    moved = tmp_path_factory.mktemp("elsewhere") / "set"
    folder.rename(moved)
    assert opened(moved).fingerprint == before
    images = np.load(moved / "fog.npy")
    images[-1, -1, -1] ^= 1  # the same length
    np.save(moved / "fog.npy", images)
    assert opened(moved).fingerprint != before
