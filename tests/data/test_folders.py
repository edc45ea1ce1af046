"""Trees of class folders: listing, choice, labels."""

from __future__ import annotations

import pytest

from ctta.base.errors import InputError
from ctta.data.dataset import Data
from ctta.data.folders import chosen, class_folders, class_indices, found_in, labels_of, listing, unusable, wnids
from trees import WNIDS, write_classes


def test_the_classes_of_ilsvrc():
    assert len(wnids()) == len(set(wnids())) == 1000
    assert list(wnids()) == sorted(wnids())
    assert wnids()[0] == "n01440764"  # tench
    assert wnids()[281] == "n02123045"  # tabby
    assert wnids()[999] == "n15075141"  # toilet tissue


def test_listing_needs_class_folders(tmp_path):
    with pytest.raises(InputError, match=r"holds no class folders with pictures .* Found: nothing"):
        listing(tmp_path)
    write_classes(tmp_path, ("b", "a"), each=2, size=(8, 8))
    (tmp_path / "empty").mkdir()
    assert listing(tmp_path) == (["a/a_0.JPEG", "a/a_1.JPEG", "b/b_0.JPEG", "b/b_1.JPEG"], "")
    assert class_folders(tmp_path) == ["a", "b", "empty"]
    (tmp_path / "loose.png").touch()
    with pytest.raises(InputError, match=r"outside of class folders: loose\.png"):
        listing(tmp_path)
    assert found_in(tmp_path / "none") == f"There is no folder {tmp_path / 'none'}."


def test_a_list_or_the_seed_chooses(tmp_path):
    names = [f"a/{i}.png" for i in range(6)]
    mixed = chosen(Data(seed=3), names)
    assert sorted(mixed) == names
    assert chosen(Data(seed=3, first=1, images=2), names) == mixed[1:3]
    (tmp_path / "list.txt").write_text("a/5.png\n\n a/0.png \n")
    assert chosen(Data(list=str(tmp_path / "list.txt")), ()) == ("a/5.png", "a/0.png")
    for content in ("", "5.png"):
        (tmp_path / "list.txt").write_text(content)
        with pytest.raises(InputError, match="one class/name per line"):
            chosen(Data(list=str(tmp_path / "list.txt")), names)


def test_labels_by_wnid_or_by_position(tmp_path):
    indices, classes = class_indices(Data(), ("cat", "ant"), tmp_path)
    assert (indices, classes) == ({"ant": 0, "cat": 1}, ("ant", "cat"))
    assert labels_of(["cat/1.png", "ant/2.png"], indices, tmp_path).tolist() == [1, 0]
    with pytest.raises(InputError, match="does not hold: dog"):
        labels_of(["dog/1.png"], indices, tmp_path)
    assert class_indices(Data(), WNIDS, tmp_path)[0][WNIDS[2]] == 999
    assert class_indices(Data(labels="sorted"), WNIDS, tmp_path)[0][WNIDS[2]] == 2
    with pytest.raises(InputError, match="no wnids of ILSVRC: cat"):
        class_indices(Data(), ("cat", WNIDS[0]), tmp_path)


def test_missing_and_empty_files(tmp_path):
    (tmp_path / "empty.png").touch()
    (tmp_path / "whole.png").write_bytes(b"x")
    assert unusable(tmp_path, ("none.png", "empty.png", "whole.png")) == {
        "Missing": ["none.png"],
        "Empty": ["empty.png"],
    }
