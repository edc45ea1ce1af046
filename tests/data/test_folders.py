"""image_folder, imagenet_c and imagenet_r: labels, order, conventions, and broken trees of every kind."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from ctta import InputError, Source
from ctta.base.errors import ConfigError
from ctta.data.corruptions import corrupt
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.folders import wnids
from ctta.data.pictures import through_jpeg
from ctta.data.stream import Batch
from ctta.running.runner import evaluate
from trees import WNIDS, picture, truncate, write_classes


def opened(path, dataset="image_folder", **changes):
    return open_stream(Data(**{"dataset": dataset, "path": str(path), "domains": ("fog",), "batch": 5} | changes))


def refusal(path, dataset="image_folder", **changes):
    with pytest.raises(InputError) as caught:
        list(opened(path, dataset, **changes))
    return str(caught.value)


def test_the_classes_of_ilsvrc():
    assert len(wnids()) == len(set(wnids())) == 1000
    assert list(wnids()) == sorted(wnids())
    assert wnids()[0] == "n01440764"  # tench
    assert wnids()[281] == "n02123045"  # tabby
    assert wnids()[999] == "n15075141"  # toilet tissue


# image_folder


def test_own_classes_are_numbered_by_name(tmp_path):
    write_classes(tmp_path, ("zebra", "ant", "cat"), size=(40, 40), suffix=".png")
    stream = opened(tmp_path, domains="clean", batch=12)
    assert stream.classes == ("ant", "cat", "zebra")
    (batch,) = stream
    names = stream.domains[0].images.names
    assert [stream.classes[label] for label in batch.y] == [name.partition("/")[0] for name in names]
    found = (batch.x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    for name, image in zip(names, found, strict=True):
        assert np.array_equal(image, np.asarray(Image.open(tmp_path / name)))


def test_wnids_are_ilsvrc_s_classes(tmp_path):
    write_classes(tmp_path)
    stream = opened(tmp_path, domains="clean")
    assert stream.classes == wnids()
    assert sorted(set(torch.cat([batch.y for batch in stream]).tolist())) == [1, 7, 999]
    assert sorted(set(opened(tmp_path, labels="sorted").domains[0].labels.tolist())) == [0, 1, 2]
    write_classes(tmp_path, ("cat",))
    assert "no wnids of ILSVRC: cat" in refusal(tmp_path)
    assert opened(tmp_path, labels="sorted").classes == ("cat", *WNIDS)


def test_the_order_is_mixed_by_the_seed_and_a_prefix_stays_a_prefix(tmp_path):
    write_classes(tmp_path, ("a", "b", "c"), each=10, size=(32, 32))
    names = opened(tmp_path).domains[0].images.names
    assert len(names) == len(set(names)) == 30
    assert {name[0] for name in names[:10]} == {"a", "b", "c"}
    assert opened(tmp_path, images=7).domains[0].images.names == names[:7]
    assert opened(tmp_path, seed=1).domains[0].images.names != names
    (tmp_path / "list.txt").write_text("b/b_3.JPEG\na/a_0.JPEG\n\nc/c_9.JPEG")
    listed = opened(tmp_path, list=str(tmp_path / "list.txt"))
    assert listed.domains[0].images.names == ("b/b_3.JPEG", "a/a_0.JPEG", "c/c_9.JPEG")
    assert listed.domains[0].labels.tolist() == [1, 0, 2]


def test_large_pictures_are_corrupted_and_go_through_jpeg(tmp_path):
    write_classes(tmp_path, ("a", "b"), each=2, suffix=".png")
    domain = opened(tmp_path, seed=3).domains[0]
    clean = np.stack([np.asarray(Image.open(tmp_path / name)) for name in domain.images.names])
    foggy = corrupt(clean, "fog", 5, "imagenet", 3)
    assert np.array_equal(domain.load(np.arange(4))[0], np.stack([through_jpeg(image) for image in foggy]))
    plain = opened(tmp_path, seed=3, jpeg=False).domains[0]
    assert np.array_equal(plain.load(np.array([2, 1]))[0], foggy[[2, 1]])
    small = opened(tmp_path, seed=3, constants="cifar").domains[0]
    assert np.array_equal(small.load(np.arange(4))[0], corrupt(clean, "fog", 5, "cifar", 3))
    assert np.array_equal(opened(tmp_path, severity=0, seed=3).domains[0].load(np.arange(4))[0], clean)


def test_a_cache_serves_several_folders_and_threads(tmp_path):
    one, two = (write_classes(tmp_path / name, ("a", "b"), size=(32, 32), offset=i) for i, name in enumerate("xy"))
    cache = str(tmp_path / "cache")
    for folder in (one, two):
        expected = torch.cat([batch.x for batch in opened(folder, batch=2)])
        assert torch.equal(torch.cat([batch.x for batch in opened(folder, batch=2, cache=cache)]), expected)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_pictures_of_many_sizes(tmp_path):
    write_classes(tmp_path, ("a",), size=(300, 400))
    write_classes(tmp_path, ("b",), size=(500, 333))
    text = refusal(tmp_path)
    assert "differ in size" in text
    assert "resize256" in text
    for changes, shape in (
        ({"preprocessing": "resize256"}, (3, 224, 224)),
        ({"preprocessing": "none"}, (3, 224, 224)),
        ({"size": 48}, (3, 48, 48)),
    ):
        assert {tuple(batch.x.shape[1:]) for batch in opened(tmp_path, domains="clean", **changes)} == {shape}
    with pytest.raises(ConfigError, match="exclude each other"):
        opened(tmp_path, preprocessing="none", size=48)
    write_classes(tmp_path, ("c",), size=(100, 300))
    text = refusal(tmp_path, preprocessing="none")
    assert "100 x 300 pixels" in text
    assert str(tmp_path / "c" / "c_") in text


def test_sizes_against_pil_and_by_hand(tmp_path):
    write_classes(tmp_path, ("a",), each=1, size=(300, 400), suffix=".png")
    stored = Image.open(tmp_path / "a" / "a_0.png")

    def image(**changes):
        return opened(tmp_path, domains="clean", **changes).domains[0].load(np.arange(1))[0][0]

    resized = np.asarray(stored.resize((341, 256), Image.Resampling.BILINEAR))  # 400 * 256 / 300 = 341.3
    assert np.array_equal(image(preprocessing="resize256"), resized[16:240, 58:282])  # (341 - 224) / 2 = 58.5, to even
    assert np.array_equal(image(preprocessing="none"), np.asarray(stored)[38:262, 88:312])


def test_broken_folders(tmp_path):
    assert "holds no class folders with pictures" in refusal(tmp_path / "none")
    write_classes(tmp_path, ("a", "b"), size=(32, 32))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    shutil.copy(tmp_path / "a" / "a_0.JPEG", tmp_path / "__MACOSX" / "a.JPEG")
    assert opened(tmp_path).classes == ("a", "b")
    (tmp_path / "list.txt").write_text("a/a_0.JPEG\na/a_77.JPEG\n")
    assert "Missing: a/a_77.JPEG." in refusal(tmp_path, list=str(tmp_path / "list.txt"))
    (tmp_path / "list.txt").write_text("a_0.JPEG\n")
    assert "one class/name a line" in refusal(tmp_path, list=str(tmp_path / "list.txt"))
    (tmp_path / "b" / "b_1.JPEG").write_bytes(b"")
    assert "Empty: b/b_1.JPEG." in refusal(tmp_path)
    shutil.copy(tmp_path / "a" / "a_0.JPEG", tmp_path / "loose.JPEG")
    assert "outside of class folders: loose.JPEG" in refusal(tmp_path)


@pytest.mark.parametrize(("content", "words"), [(b"<html>", "is a web page, not an image"), (None, "truncated")])
def test_a_bad_picture_is_named_when_it_is_due(tmp_path, content, words):
    write_classes(tmp_path, ("a", "b"), size=(64, 64))
    names = opened(tmp_path).domains[0].images.names
    bad = tmp_path / names[5]
    truncate(bad) if content is None else bad.write_bytes(content)
    batches = iter(opened(tmp_path, batch=2, size=64, domains=("clean", "fog")))
    assert [next(batches).step, next(batches).step] == [0, 1]
    with pytest.raises(InputError, match=words) as caught:
        next(batches)
    assert str(bad) in str(caught.value)


def test_decoding_ahead_changes_nothing_and_leaves_no_thread(tmp_path):
    write_classes(tmp_path, ("a", "b"), each=6, size=(64, 80))
    stream = opened(tmp_path, domains=("clean", "fog", "contrast"), size=64)
    assert stream.ahead > 0
    plain = Batch.__dataclass_fields__
    slow = type(stream)(**{**vars(stream), "ahead": 0})
    for start in (0, 2, 4):
        for left, right in zip(stream.batches(start), slow.batches(start), strict=True):
            for name in plain:
                one, two = getattr(left, name), getattr(right, name)
                assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
    batches = stream.batches()
    next(batches)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


# imagenet_c


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
    names = stream.domains[0].images.names
    assert names == stream.domains[1].images.names
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
    assert stream.domains[0].images.names == tuple(wanted)
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


# imagenet_r


def test_imagenet_r_is_scored_on_its_own_classes(tmp_path):
    write_classes(tmp_path, each=2, size=(120, 90), suffix=".jpg")
    (tmp_path / "README.txt").write_text("hello")
    stream = opened(tmp_path, "imagenet_r", domains="paper")
    assert [(domain.name, domain.severity) for domain in stream.domains] == [("imagenet_r", 0)]
    assert stream.scored == (1, 7, 999)
    assert stream.notes == ("Only 3 of the 200 classes of ImageNet-R are in the folder; scored on those.",)
    batch = next(iter(stream))
    logits = torch.zeros(2, 1000)
    logits[0, [1, 7, 500]] = torch.tensor([1.0, 2.0, 9.0])  # 500 does not count
    logits[1, 999] = -1
    logits[1, 7] = -2
    logits[1, 1] = -3
    assert batch.answer(logits).tolist() == [7, 999]


class Confused(nn.Module):
    """Sure of class 500, which is not in the set; of the others, of class 7."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 1000)

    def forward(self, x):
        logits = torch.zeros(len(x), 1000) + 0 * self.head(x[:, 0, 0, :1])
        logits[:, 500], logits[:, 7] = 10, 5
        return logits


def test_the_runner_scores_what_counts_and_confidence_stays_the_adapter_s(tmp_path):
    write_classes(tmp_path, each=2, size=(64, 64))
    (evaluated,) = evaluate(Source(Confused()), opened(tmp_path, "imagenet_r", domains="paper", batch=6))
    record = evaluated.record
    assert (record.n, record.wrong) == (6, 4)  # the two pictures of class 7 are right
    assert record.info["confidence"] == pytest.approx(np.e**10 / (np.e**10 + np.e**5 + 998), rel=1e-4)


def test_broken_imagenet_r(tmp_path):
    text = refusal(tmp_path, "imagenet_r", domains="paper")
    assert "github.com/hendrycks/imagenet-r" in text
    write_classes(tmp_path, ("cat", WNIDS[0]), each=1, size=(64, 64))
    assert "No classes of ILSVRC: cat" in refusal(tmp_path, "imagenet_r", domains="paper")
    shutil.rmtree(tmp_path / "cat")
    small = picture(0, 8, 8)
    for wnid in wnids()[:201]:
        (tmp_path / wnid).mkdir(exist_ok=True)
        small.save(tmp_path / wnid / "a.jpg")
    assert "Too many classes: 201 instead of 200" in refusal(tmp_path, "imagenet_r", domains="paper")
    shutil.rmtree(tmp_path / wnids()[0])
    assert opened(tmp_path, "imagenet_r", domains="paper").notes == ()
