"""Domains in folders of their own: classes of all of them, wnids, numbers, lists."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ctta.base.errors import ConfigError, InputError
from ctta.cli.app import app
from ctta.data.dataset import Data
from ctta.data.datasets import find, open_stream
from ctta.data.folders import wnids
from trees import WNIDS, picture_names, write_classes

PACS = ("dog", "elephant", "house")


def data(folders, **changes):
    return Data(**{"dataset": "folders", "folders": folders, "size": 16, "batch": 5} | changes)


@pytest.fixture
def pacs(tmp_path):
    for offset, name in enumerate(("art", "Real World")):
        write_classes(tmp_path / name, PACS, each=3, size=(20, 24), suffix=".jpg", offset=offset)
    return tmp_path


def test_domains_in_their_order(pacs):
    folders = {"real": str(pacs / "Real World"), "art": str(pacs / "art")}
    stream = open_stream(data(folders))
    assert [(domain.name, domain.severity, len(domain)) for domain in stream.domains] == [("real", 0, 9), ("art", 0, 9)]
    assert stream.classes == PACS
    assert not stream.notes
    for domain, place in zip(stream.domains, picture_names_of(stream), strict=True):
        assert [PACS[label] for label in domain.labels] == [name.partition("/")[0] for name in place]
    assert next(iter(stream)).x.shape == (5, 3, 16, 16)
    assert [one.name for one in open_stream(data(folders, domains=("art",))).domains] == ["art"]
    assert [one.name for one in open_stream(data(folders, domains=("art", "real", "art"))).domains] == [
        "art",
        "real",
        "art",
    ]


def picture_names_of(stream):
    return [picture_names(stream, number) for number in range(len(stream.domains))]


def test_places_are_relative_to_the_path(pacs):
    stream = open_stream(data({"art": "art", "real": "Real World"}, path=str(pacs)))
    there = open_stream(data({"art": str(pacs / "art"), "real": str(pacs / "Real World")}))
    assert stream.fingerprint == there.fingerprint
    assert stream.fingerprint != open_stream(data({"art": "Real World", "real": "art"}, path=str(pacs))).fingerprint


def test_classes_are_those_of_all_domains(pacs):
    write_classes(pacs / "art", ("cat",), each=1, size=(20, 20))
    stream = open_stream(data({"art": "art", "real": "Real World"}, path=str(pacs)))
    assert stream.classes == ("cat", *PACS)
    assert stream.notes == ("The domain real lacks 1 of 4 classes: cat.",)
    assert sorted(set(stream.domains[1].labels.tolist())) == [1, 2, 3]


def test_wnids_are_scored_as_in_imagenet_a(tmp_path):
    write_classes(tmp_path / "imagenet-a", WNIDS, each=1, size=(20, 20))
    stream = open_stream(data({"a": str(tmp_path / "imagenet-a")}))
    assert stream.scored == (1, 7, 999)
    assert sorted(stream.domains[0].labels.tolist()) == [1, 7, 999]
    assert stream.classes == wnids()
    assert "3 of the 1,000 classes" in stream.notes[0]


def test_numbers_are_labels_only_on_request(tmp_path):
    write_classes(tmp_path, [str(number) for number in range(11)], each=1, size=(20, 20))
    with pytest.raises(InputError, match=r"sorted as texts come as 0, 1, 10, 2 .*labels: numbers.*labels: sorted"):
        open_stream(data({"a": str(tmp_path)}))
    for labels, right in (("numbers", True), ("sorted", False)):
        stream = open_stream(data({"a": str(tmp_path)}, labels=labels))
        names = [int(name.partition("/")[0]) for name in picture_names(stream)]
        assert (stream.domains[0].labels.tolist() == names) == right


@pytest.mark.parametrize("strange", ["cat", "01", "1000000", "-1", "1.5"])
def test_what_is_no_number(tmp_path, strange):
    write_classes(tmp_path, ["1", strange], each=1, size=(20, 20))
    with pytest.raises(InputError, match="must have class folders that are numbers, each once"):
        open_stream(data({"a": str(tmp_path)}, labels="numbers"))


def test_lists_of_pictures_and_labels(pacs):
    names = {"art": ["dog/dog_1.jpg 0", "house/house_0.jpg 65", "house/house_2.jpg 65"]}
    for domain, lines in names.items():
        (pacs / f"{domain}.txt").write_text("\n".join(f"{domain}/{line}" for line in lines))
    stream = open_stream(data({"art": "art.txt"}, path=str(pacs)))
    assert dict(zip(picture_names(stream), stream.domains[0].labels.tolist(), strict=True)) == {
        "art/dog/dog_1.jpg": 0,
        "art/house/house_0.jpg": 65,
        "art/house/house_2.jpg": 65,
    }
    alone = open_stream(data({"art": str(pacs / "art.txt")}))  # from the folder of the list
    assert alone.fingerprint == stream.fingerprint
    with pytest.raises(InputError, match="Give all as folders, or all as lists"):
        open_stream(data({"art": "art.txt", "real": "Real World"}, path=str(pacs)))


@pytest.mark.parametrize("content", ["", "art/dog/dog_1.jpg", "art/dog/dog_1.jpg x", "a.jpg -1", "a.jpg 99999999"])
def test_a_list_that_is_none(pacs, content):
    (pacs / "art.txt").write_text(content)
    with pytest.raises(InputError, match=r"'clipart/bird/bird_1.jpg 7'"):
        open_stream(data({"art": "art.txt"}, path=str(pacs)))


def test_missing_folders_and_pictures(pacs):
    with pytest.raises(InputError, match="There is no folder"):
        open_stream(data({"art": str(pacs / "arts")}))
    (pacs / "l.txt").write_text("art/dog/none.jpg 1")
    with pytest.raises(InputError, match=r"lacks pictures. Missing: art/dog/none.jpg"):
        open_stream(data({"art": "l.txt"}, path=str(pacs)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"folders": None}, "needs folders: folders: {art: "),
        ({"folders": {}}, "needs folders"),
        ({"domains": ("arts",)}, "There is no domain 'arts'. Did you mean 'art'?"),
        ({"severity": 3}, "has no severity"),
        ({"cache": "x"}, "is not corrupted with 'cache'"),
        ({"dataset": "embedded", "size": None}, "does not use 'folders'"),
    ],
)
def test_settings_that_do_not_fit(changes, words):
    with pytest.raises(ConfigError) as error:
        open_stream(data({"art": "art"}, **changes) if "folders" not in changes else data(**changes))
    assert words in str(error.value)


@pytest.mark.parametrize("folders", [["art"], {"art": 3}, {3: "art"}, "art", {"art": {"x": "y"}}])
def test_folders_of_another_kind(folders):
    with pytest.raises(ConfigError, match="must be a mapping from names to values, each a text or none"):
        Data.make({"dataset": "folders", "folders": folders})


def test_in_an_experiment_with_source_data(pacs, tmp_path):
    folders = {"art": str(pacs / "art"), "real": str(pacs / "Real World")}
    section = {"dataset": "folders", "size": 32, "batch": 3}
    spec = {
        "data": section | {"folders": {"real": folders["real"]}},
        "source": section | {"folders": {"art": folders["art"]}},
        "methods": ["source", "eata"],
    }
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    made = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "out"), "--quiet"])
    assert made.exit_code == 0, made.output
    assert "EATA" in made.output
    (tmp_path / "moved").mkdir()
    (pacs / "Real World").rename(tmp_path / "moved" / "rw")
    spec["data"]["folders"] = {"real": str(tmp_path / "moved" / "rw")}
    path.write_text(json.dumps(spec))
    again = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "out"), "--quiet"])
    assert again.exit_code == 0, "where the files are does not decide the numbers"
    spec["source"]["folders"] = {"also": str(tmp_path / "moved" / "rw")}
    path.write_text(json.dumps(spec))
    shared = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "other"), "--quiet"])
    assert "some of these samples are in the stream too" in " ".join(shared.output.split())


def test_the_table_names_the_sizing():
    assert find(data({"a": "b"})).named(data({"a": "b"})) == "own domains (size 16)"
    assert np.array_equal(Data().folders, None)
