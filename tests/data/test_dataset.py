"""Settings of a stream: rows, domains with severities, titles, and everything wrong at once."""

from __future__ import annotations

import pytest

from ctta.base.errors import InputError
from ctta.data.corruptions import EXTRA, NAMES, PAPER
from ctta.data.dataset import Data, DataSet
from ctta.data.pictures import Fit


def dataset(**changes):
    return DataSet("Set", "a folder.", lambda data, pairs: None, **changes)


def test_rows():
    assert Data().rows(7) == slice(0, 7)
    assert Data(first=2, images=3).rows(7) == slice(2, 5)
    assert Data(first=6, images=3).rows(7) == slice(6, 7)
    with pytest.raises(InputError, match="There are 7 samples, so the first cannot be number 7"):
        Data(first=7).rows(7)


def test_domains_and_their_severities():
    assert dataset().pairs(Data(domains=("fog", "clean"), severity=3)) == (("fog", 3), ("clean", 0))
    assert dataset(holds="natural", domains={"paper": ("r",)}).pairs(Data()) == (("r", 0),)
    for name, names in (("paper", PAPER), ("extra", EXTRA), ("all", NAMES), ("clean", ("clean",))):
        assert dataset().names(Data(domains=name)) == names


def test_titles_and_sizes_name_the_convention():
    pictures = dataset(preprocessing="resize256")
    for data, title, fit in (
        (Data(), "Set (resize256)", Fit(256, 224)),
        (Data(preprocessing="none"), "Set (none)", Fit(None, 224)),
        (Data(size=48), "Set (size 48)", Fit(48, 48)),
    ):
        assert (pictures.named(data), pictures.fit(data)) == (title, fit)
    assert (dataset().named(Data()), dataset().fit(Data())) == ("Set", Fit())


def test_everything_wrong_at_once():
    wrong = Data(dataset="set", domains=("fgo", "clean"), severity=0, size=3, preprocessing="none", jpeg=True)
    unknown, clean, *rest = dataset(holds="corrupted", uses=("size",)).problems(wrong)
    assert unknown.startswith("There is no corruption 'fgo'. Did you mean 'fog'?")
    assert clean.startswith("There is no corruption 'clean'.")
    assert rest == [
        "Set holds severities 1 to 5 and no clean samples. Got severity 0.",
        "The data set 'set' needs a path: a folder.",
        "The data set 'set' does not use 'preprocessing'. Remove it.",
        "The data set 'set' does not use 'jpeg'. Remove it.",
        "size and preprocessing exclude each other: give one of them.",
    ]
    assert dataset().problems(Data(path="x", domains=())) == ["The list of domains is empty. Name at least one."]
    assert "no set of domains 'papr'" in dataset().problems(Data(path="x", domains="papr"))[0]
    assert dataset(needs_path=False).problems(Data(domains=("clean", "fog"))) == []
