"""What every image corruption must honour: shapes, seeds, errors, and agreement with the public generator."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from corrupted_images import pictures
from ctta.base.errors import CttaError
from ctta.data.corruptions import NAMES, PRESETS, SEVERITIES, corrupt, images
from needs import DATA

needs_data = pytest.mark.skipif(
    not (DATA / "corruption_reference.json").exists(),
    reason="needs the shared data: set CTTA_DATA to the folder with corruption_reference.json",
)


def test_the_table_holds_every_corruption():
    assert tuple(images.CORRUPTIONS) == NAMES


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (33, 47), (64, 64), (224, 224)])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_shape_and_type_are_kept_at_any_size(name, preset, size):
    x = pictures(2 if size[0] < 224 else 1, *size)
    before = x.copy()
    for severity in SEVERITIES if size[0] < 64 else (1, 5):
        y = corrupt(x, name, severity, preset)
        assert y.dtype == np.uint8
        assert y.shape == x.shape
        assert not np.array_equal(x, y)
        assert not np.shares_memory(x, y)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_an_image_does_not_depend_on_its_batch(name, preset, monkeypatch):
    x = pictures(11, 33, 29)
    whole = corrupt(x, name, 5, preset, seed=3, first=40)
    pieces = [corrupt(x[a:b], name, 5, preset, seed=3, first=40 + a) for a, b in ((0, 1), (1, 4), (4, 11))]
    assert np.array_equal(whole, np.concatenate(pieces))
    for chunk, threads in ((1, 3), (4000, 2), (2**20, 1)):
        monkeypatch.setattr(images, "CHUNK", chunk)
        monkeypatch.setattr("ctta.data.corruptions.domain.THREADS", threads)
        assert np.array_equal(whole, corrupt(x, name, 5, preset, seed=3, first=40))


FIXED = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
FIXED += ("gaussian_blur", "saturate")


@pytest.mark.parametrize("name", NAMES)
def test_seed_and_index_decide_the_draws(name):
    x = np.repeat(pictures(1), 2, axis=0)
    y = corrupt(x, name)
    assert np.array_equal(y, corrupt(x, name, seed=0))
    changes = not np.array_equal(y, corrupt(x, name, seed=1)) and not np.array_equal(y[0], y[1])
    assert changes == (name not in FIXED)


def test_the_global_generator_is_left_alone():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    for name in NAMES:
        corrupt(pictures(1), name)
    assert np.random.random() == expected  # noqa: NPY002


def test_no_images_give_no_images():
    assert corrupt(np.zeros((0, 32, 32, 3), np.uint8), "fog").shape == (0, 32, 32, 3)


def test_a_view_that_is_not_contiguous_works():
    x = pictures(4, 40, 40)
    assert np.array_equal(corrupt(x[::2, ::-1], "snow"), corrupt(x[::2, ::-1].copy(), "snow"))


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("name", NAMES)
def test_black_and_white_images_work(name, level):
    x = np.full((2, 32, 32, 3), level, np.uint8)
    for severity in SEVERITIES:
        assert corrupt(x, name, severity).shape == x.shape


MONOTONE = ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "zoom_blur", "brightness")
MONOTONE += ("contrast", "pixelate", "jpeg_compression", "speckle_noise", "gaussian_blur")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", MONOTONE)
def test_more_severity_is_more_change(name, preset):
    x = pictures(24, 64, 64)
    change = [np.abs(corrupt(x, name, s, preset).astype(int) - x).mean() for s in SEVERITIES]
    assert all(low < high for low, high in pairwise(change)), change


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "foq"}, "Did you mean 'fog'"),
        ({"name": "gausian_noise"}, "Did you mean 'gaussian_noise'"),
        ({"name": None}, "No corruption is called None"),
        ({"severity": 0}, "must be one of 1, 2, 3, 4, 5. Got 0"),
        ({"severity": 2.5}, "Got 2.5"),
        ({"severity": True}, "Got True"),
        ({"preset": "imagnet"}, "Did you mean 'imagenet'"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
        ({"first": -2}, "`first` must be a whole number of at least 0"),
        ({"images": [[1]]}, "Got list instead"),
        ({"images": np.zeros((1, 32, 32, 3), np.float32)}, "multiply images in [0, 1] by 255"),
        ({"images": np.zeros((32, 32, 3), np.uint8)}, "add the batch axis"),
        ({"images": np.zeros((1, 3, 32, 32), np.uint8)}, "move the three channels last"),
        ({"images": np.zeros((1, 27, 32, 3), np.uint8)}, "at least 28 pixels"),
        ({"name": "frost", "frost": "no/such/folder"}, "No frost photographs in"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(arguments, message):
    call = {"images": pictures(1), "name": "fog", **arguments}
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        corrupt(**call)
    assert isinstance(caught.value, CttaError)


@needs_data
@pytest.mark.parametrize("preset", PRESETS)
def test_statistics_agree_with_the_public_generator(preset):
    """A subset; `python -m benchmarks.corruption_reference` compares all of it."""
    reference = json.loads((DATA / "corruption_reference.json").read_text())[preset]
    if preset == "cifar":
        with np.load(DATA / "cifar10_test_first5000.npz") as archive:
            clean = archive["images"][: reference["images"]]
        names, severities = NAMES, (1, 3, 5)
    else:
        paths = sorted((DATA / "imagenet_samples").glob("*/*.JPEG"))[: reference["images"]]
        clean = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])
        # Without much chance in them: one seed is enough.
        names = ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "zoom_blur")
        names += ("brightness", "contrast", "pixelate", "jpeg_compression", "speckle_noise", "saturate")
        severities = (2, 4)
    apart = []
    for name in names:
        for severity in severities:
            y = corrupt(clean, name, severity, preset).astype(np.float32) / 255
            ours = {
                "change": np.abs(y - clean / np.float32(255)).mean(),
                "grad_x": np.abs(np.diff(y, axis=2)).mean(),
                "grad_y": np.abs(np.diff(y, axis=1)).mean(),
            }
            for statistic, value in ours.items():
                public = reference[name][str(severity)][statistic]
                if abs(value - public) > (0.25 if name == "frost" else 0.1) * public + 0.00005:
                    apart.append((name, severity, statistic, public, float(value)))
    assert not apart
