"""Data of one's own: a stream or a torch Dataset per domain, by file, module or installed package."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import own
from ctta.base import own_code
from ctta.base.errors import ConfigError, InputError
from ctta.cli.app import app
from ctta.data.dataset import Data
from ctta.data.datasets import find, open_stream

CODE = """
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

import ctta

RUNS = []
X = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


class Pictures(Dataset):
    targets = Y.tolist()
    classes = ["a", "b", "c"]
    reads = []

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 12

    def __getitem__(self, row):
        self.reads.append(row)
        array = (X[row].permute(1, 2, 0) * 255).byte()
        image = {
            "float": X[row],
            "tensor": array.permute(2, 0, 1),
            "array": array.numpy(),
            "picture": Image.fromarray(array.numpy()),
        }[self.kind]
        return image, self.targets[row]


def make():
    RUNS.append(None)
    return {kind: Pictures(kind) for kind in ("float", "tensor", "array", "picture")}


def subsets(path):
    assert path == "some/where"
    return {"even": Subset(Pictures("float"), range(0, 12, 2)), "all": TensorDataset(X, Y)}


def clouds():
    return {"scan": TensorDataset(torch.rand(4, 20, 3), Y[:4])}


def stream():
    images = np.zeros((4, 8, 8, 3), np.uint8)
    dark = ctta.Domain("dark", 3, np.arange(4) % 2, images.__getitem__)
    light = ctta.Domain("light", 3, np.arange(4) % 2, (images + 200).__getitem__)
    return ctta.Stream((dark, light), batch=1, classes=("x", "y"), notes=("mine",))


def lies():
    class Lies(Pictures):
        def __getitem__(self, row):
            return X[row], self.targets[row] if row < 3 else 9
    return {"a": Lies("float")}


def ragged():
    return {"a": [(torch.rand(3, 8, 8 + row), 0) for row in range(3)]}


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield X[0], 0


def endless(): return {"a": Endless()}
def nothing(): return None
def empty(): return {}
def no_samples(): return {"a": TensorDataset(X[:0], Y[:0])}
def fails(): raise OSError("no disk")
def twice(): return ctta.Stream((stream().domains[0],) * 2, batch=1)
def unnamed(): return {"a\\nb": Pictures("float")}
def numbered(): return {3: Pictures("float")}
"""


@pytest.fixture
def path(tmp_path):
    return own.write(tmp_path / "my_data.py", CODE)


def data(file, name, **changes):
    return Data(**{"dataset": f"{file}:{name}", "batch": 5} | changes)


def test_every_kind_of_image_gives_the_same_batches(path):
    stream = open_stream(data(path, "make"))
    assert [domain.name for domain in stream.domains] == ["float", "tensor", "array", "picture"]
    assert stream.classes == ("a", "b", "c")
    by_kind = {batch.domain: batch for batch in stream if batch.first}
    expected = by_kind["float"]
    assert expected.y.tolist() == [0, 1, 2, 0, 1]
    for batch in by_kind.values():
        assert batch.x.shape == (5, 3, 8, 8)
        assert torch.allclose(batch.x, expected.x, atol=1 / 255)
        assert batch.y.equal(expected.y)


def test_the_function_is_run_once_and_reads_only_what_is_needed(path):
    for _ in range(3):
        stream = open_stream(data(path, "make", domains=("tensor",), first=4, images=3))
    assert len(own_code.load(f"{path}:RUNS")) == 1
    reads = own_code.load(f"{path}:Pictures").reads
    assert reads == [0]  # to see what the samples are
    (batch,) = stream
    assert batch.y.tolist() == [1, 2, 0]
    assert reads == [0, 4, 5, 6]


def test_subsets_paths_and_labels_without_an_attribute(path):
    stream = open_stream(data(path, "subsets", path="some/where", batch=12))
    even, whole = stream
    assert even.y.equal(whole.y[::2])
    assert even.x.equal(whole.x[::2])


def test_point_clouds(path):
    assert find(data(path, "clouds")).samples == "clouds"
    (batch,) = open_stream(data(path, "clouds"))
    assert batch.x.shape == (4, 20, 3)


def test_a_stream(path):
    stream = open_stream(data(path, "stream", batch=3, images=2))
    assert [(batch.domain, batch.severity, batch.y.tolist()) for batch in stream] == [
        ("dark", 3, [0, 1]),
        ("light", 3, [0, 1]),
    ]
    assert (stream.batch, stream.classes, stream.notes) == (3, ("x", "y"), ("mine",))
    assert [one.name for one in open_stream(data(path, "stream", domains=("light", "dark"))).domains] == [
        "light",
        "dark",
    ]


def test_another_content_is_another_identity(path):
    one = open_stream(data(path, "make")).fingerprint
    assert one == open_stream(data(path, "make", batch=2)).fingerprint
    own.write(path, CODE.replace("manual_seed(0)", "manual_seed(1)"))
    assert one != open_stream(data(path, "make")).fingerprint


def test_labels_that_differ_from_the_targets(path):
    stream = open_stream(data(path, "lies"))
    with pytest.raises(InputError, match="Item 3 of the domain 'a' has the label 9, and its `targets` say 0"):
        list(stream)


def test_samples_of_several_shapes(path):
    with pytest.raises(InputError, match=r"differ in shape: \(3, 8, 8\) and \(3, 8, 9\)"):
        list(open_stream(data(path, "ragged")))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "it returned NoneType"),
        ("empty", "it returned no domains"),
        ("no_samples", "it has no samples"),
        ("fails", "OSError: no disk"),
        ("twice", "2 domains are called 'dark'"),
        ("unnamed", "a text on one line"),
        ("numbered", "a text on one line"),
        ("endless", "Endless, which has no items to choose from"),
        ("RUNS", "TypeError"),
        ("missing", "AttributeError"),
        ("subsets", "TypeError"),
    ],
)
def test_what_is_no_data(path, name, words):
    with pytest.raises(ConfigError, match=r"a function that returns a ctta.Stream, or a mapping") as error:
        open_stream(data(path, name))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"domains": ("flaot",)}, "There is no domain 'flaot'. Did you mean 'float'?"),
        ({"severity": 2}, "has no severity"),
        ({"size": 8}, "does not use 'size'"),
    ],
)
def test_settings_without_effect(path, changes, words):
    with pytest.raises(ConfigError) as error:
        open_stream(data(path, "make", **changes))
    assert words in str(error.value)


EXPERIMENT = """
import torch
from torch.utils.data import TensorDataset

X = torch.rand(20, 3, 32, 32, generator=torch.Generator().manual_seed(0))
Y = torch.arange(20) % 10


def make():
    return {"day": TensorDataset(X, Y), "night": TensorDataset(X * 0.3, Y)}


def train():
    return {"train": TensorDataset(X.flip(3), Y)}
"""


def test_of_an_installed_package_in_an_experiment(tmp_path, monkeypatch):
    own.write_package(tmp_path, EXPERIMENT, "ctta.datasets", day_and_night="make", before="train")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert "stranger:make" in CliRunner().invoke(app, ["list", "datasets"]).output
    assert "batch" in CliRunner().invoke(app, ["list", "datasets", "day_and_night"]).output
    spec = {
        "data": {"dataset": "day_and_night", "batch": 10},
        "source": {"dataset": "before"},
        "methods": ["source", "eata"],
        "protocol": {"kind": "recurring", "rounds": 2},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    checked = CliRunner().invoke(app, ["check", str(path)])
    assert checked.exit_code == 0, checked.output
    assert "20 samples, for methods that need source data" in checked.output
    made = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "out"), "--quiet"])
    assert made.exit_code == 0, made.output
    assert "day_and_night" in made.output
    assert "night" in made.output
    head = json.loads((tmp_path / "out" / "run.json").read_text())
    assert [name for name, _ in head["stream"]["domains"]] == ["day", "night", "day", "night"]


def test_mistakes_are_reported_with_all_others(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(
        json.dumps({"data": {"dataset": "none.py:make"}, "methods": ["tentt"], "protocol": {"kind": "drift"}})
    )
    said = " ".join(CliRunner().invoke(app, ["run", str(path)]).output.split())
    assert "The data set 'none.py:make' cannot be used" in said
    assert "There is no method 'tentt'" in said


def test_what_is_not_known_is_not_run(tmp_path):
    with pytest.raises(ConfigError, match=r"There is no data set 'embeded'. Did you mean 'embedded'"):
        find(Data(dataset="embeded"))
    assert np.array_equal(find(Data()).domains["clean"], ("clean",))
