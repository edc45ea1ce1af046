"""ImageNet-C trees: levels, conventions, lists, and incomplete ones."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.folders import wnids
from trees import WNIDS, opened, picture_names, refusal, write_classes


def write_imagenet_c(root, corruptions=("fog", "contrast"), severities=(5,), layer=""):
    for offset, name in enumerate(corruptions):
        for severity in severities:
            write_classes(root / layer / name / str(severity), offset=10 * offset + severity)
    return root


@pytest.mark.parametrize("layer", ["", "weather"])
def test_imagenet_c_with_and_without_the_layer_of_categories(tmp_path, layer):
    write_imagenet_c(tmp_path, severities=(3, 5), layer=layer)
    stream = opened(tmp_path, "imagenet_c", domains=("contrast", "fog"), severity=3, preprocessing="none")
    assert [(domain.name, domain.severity, len(domain)) for domain in stream.domains] == [
        ("contrast", 3, 12),
        ("fog", 3, 12),
    ]
    names = picture_names(stream)
    assert names == picture_names(stream, 1)
    images, labels = stream.domains[1].load(np.array([4]))
    folder, _, _ = names[4].partition("/")
    assert wnids()[labels[0]] == folder
    stored = np.asarray(Image.open(tmp_path / layer / "fog" / "3" / names[4]))
    assert np.array_equal(images[0], stored)


def test_imagenet_c_s_two_conventions_never_share_a_title(tmp_path):
    write_imagenet_c(tmp_path, ("fog",))
    one, two = (
        Data(dataset="imagenet_c", path=str(tmp_path), domains=("fog",), preprocessing=p) for p in (None, "none")
    )
    assert DATASETS["imagenet_c"].named(one) == "ImageNet-C (resize256)"
    assert DATASETS["imagenet_c"].named(two) == "ImageNet-C (none)"
    left, right = (open_stream(data).domains[0].load(np.arange(2))[0] for data in (one, two))
    assert left.shape == right.shape == (2, 224, 224, 3)
    assert not np.array_equal(left, right)
    assert open_stream(one).fingerprint != open_stream(two).fingerprint


def test_imagenet_c_by_a_list(tmp_path):
    write_imagenet_c(tmp_path)
    wanted = [f"{WNIDS[2]}/{WNIDS[2]}_1.JPEG", f"{WNIDS[0]}/{WNIDS[0]}_3.JPEG"]
    (tmp_path / "ids.txt").write_text("\n".join(wanted))
    stream = opened(tmp_path, "imagenet_c", list=str(tmp_path / "ids.txt"))
    assert picture_names(stream) == tuple(wanted)
    assert stream.domains[0].labels.tolist() == [999, 1]


def test_a_set_that_ctta_corrupt_wrote_from_own_classes(tmp_path):
    write_classes(tmp_path / "fog" / "5", ("dog", "cat"), each=2, size=(64, 64))
    stream = opened(tmp_path, "imagenet_c", size=64)
    assert stream.classes == ("cat", "dog")


def test_an_incomplete_imagenet_c_is_listed(tmp_path):
    write_imagenet_c(tmp_path, ("fog", "contrast", "snow"))
    shutil.rmtree(tmp_path / "snow")
    (tmp_path / "fog" / "5" / WNIDS[1] / f"{WNIDS[1]}_2.JPEG").unlink()
    (tmp_path / "contrast" / "5" / WNIDS[0] / f"{WNIDS[0]}_0.JPEG").write_bytes(b"")
    text = refusal(tmp_path, "imagenet_c", domains=("fog", "contrast", "snow"))
    for words in (
        "not a complete ImageNet-C",
        "Missing: snow/5",
        f"fog/5/{WNIDS[1]}/{WNIDS[1]}_2.JPEG",
        f"Empty: contrast/5/{WNIDS[0]}/{WNIDS[0]}_0.JPEG",
        "Found: contrast/5, fog/5",
        "zenodo.org/records/2235448",
    ):
        assert words in text, text
    assert "There is no folder" in refusal(tmp_path / "nowhere", "imagenet_c")
    assert "Missing: fog/4" in refusal(tmp_path, "imagenet_c", severity=4)
    (tmp_path / "snow" / "5").mkdir(parents=True)
    text = refusal(tmp_path, "imagenet_c", domains=("fog", "snow"))
    assert f"{tmp_path / 'snow' / '5'} holds no class folders with pictures" in text
    assert "zenodo" in text
    text = refusal(tmp_path, "imagenet_c", domains="paper", severity=2)
    assert "Missing: gaussian_noise/2, shot_noise/2" in text


def test_many_missing_pictures_are_a_short_message(tmp_path):
    write_imagenet_c(tmp_path, ("fog",))
    (tmp_path / "ids.txt").write_text("\n".join(f"{WNIDS[0]}/none_{i}.JPEG" for i in range(500)))
    text = refusal(tmp_path, "imagenet_c", list=str(tmp_path / "ids.txt"))
    assert "... and 490 more" in text
    assert len(text) < 2000


def test_imagenet_3dcc_has_names_of_its_own(tmp_path):
    write_imagenet_c(tmp_path, ("near_focus", "h265_crf"), severities=(2,))
    stream = opened(tmp_path, "imagenet_3dcc", domains=("h265_crf", "near_focus"), severity=2)
    assert [(domain.name, len(domain)) for domain in stream.domains] == [("h265_crf", 12), ("near_focus", 12)]
    assert len(DATASETS["imagenet_3dcc"].domains["paper"]) == 12
    text = refusal(tmp_path, "imagenet_3dcc", domains="paper", severity=2)
    assert "is not a complete ImageNet-3DCC. Missing: far_focus/2, fog_3d/2" in text
    assert "Found: h265_crf/2, near_focus/2. The public set is at datasets.epfl.ch" in text


def test_imagenet_c_bar_by_severity_or_by_strength(tmp_path):
    write_classes(tmp_path / "sparkles" / "2", offset=1)
    write_classes(tmp_path / "plasma_noise-7.0", offset=2)
    stream = opened(tmp_path, "imagenet_c_bar", domains=("sparkles", "plasma_noise"), severity=2, preprocessing="none")
    names = picture_names(stream)
    for position, place in enumerate(("sparkles/2", "plasma_noise-7.0")):
        stored = np.asarray(Image.open(tmp_path / place / names[3]))
        assert np.array_equal(stream.domains[position].read(np.array([3]))[0], stored)
    assert "Missing: plasma_noise/3" in refusal(tmp_path, "imagenet_c_bar", domains=("plasma_noise",), severity=3)
    assert len(DATASETS["imagenet_c_bar"].domains["paper"]) == 10
