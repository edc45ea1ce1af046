"""Code of one's own that fails, lies or is not there: as a method and as data. Each attempt ends in a sentence."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import own
from ctta.base.errors import ConfigError, CttaError
from ctta.cli.app import app
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.methods import find
from fake_run import write_fake_run

SPECS = [
    *(":", "x:", ":x", "os:getcwd", "nowhere.at_all:f", "..up:f", "os.path:sep", "a b:c", "none.py:f", "/:f"),
    *(
        "~nosuchuser/x.py:f",
        "x.py:f:g",
        "é:é",
        "y" * 3000 + ":f",
        "y" * 3000 + ".py:f",
        "\x1b[2J:f",
        "a\0b.py:f",
        ".:f",
    ),
]
PRELUDE = """
import sys
import numpy as np
import torch
from torch.utils.data import TensorDataset
import ctta
X, Y = torch.rand(6, 3, 8, 8), torch.arange(6)


class Sized:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, row):
        return X[row], 0


class Labelled(Sized):
    targets = [0]

"""
FAILING = {
    "a syntax error": "def make(:",
    "an exit": "sys.exit(0)",
    "an error while it is imported": "1 / 0",
    "an error with words that fail": "class E(Exception):\n    def __str__(self): raise E\nraise E",
    "a recursion": "def f(): f()\nf()",
    "bytes that are no text": b"\xff\xfe\x00",
    "an error of many lines": "raise ValueError('a\\nb' * 5000)",
    "nothing of that name": "other = 1",
}
DATA = {
    "an exit": "sys.exit(3)",
    "a number": "return 3",
    "a list": "return [TensorDataset(X, Y)]",
    "a domain that is a number": "return {'a': 3}",
    "a domain without labels": "return {'a': TensorDataset(X)}",
    "labels that are no whole numbers": "return {'a': TensorDataset(X, Y + 0.5)}",
    "one-hot labels": "return {'a': TensorDataset(X, torch.eye(6, dtype=torch.int64))}",
    "labels below -1": "return {'a': TensorDataset(X, Y - 3)}",
    "labels that are texts": "return {'a': [(x, 'cat') for x in X]}",
    "samples that are texts": "return {'a': [('cat', 3)]}",
    "samples that are whole numbers": "return {'a': TensorDataset(torch.ones(6, 3, 8, 8, dtype=torch.int64), Y)}",
    "samples that are vectors": "return {'a': TensorDataset(torch.rand(6, 5), Y)}",
    "items of three": "return {'a': TensorDataset(X, Y, Y)}",
    "a length that fails": "return {'a': Sized(None)}",
    "a length that lies": "return {'a': Sized(9)}",
    "targets that lie": "return {'a': Labelled(6)}",
    "an empty stream": "return ctta.Stream((), 3)",
    "a stream with labels of another kind": "return ctta.Stream((ctta.Domain('a', 0, [1, 2], None),), 3)",
    "a stream that cannot be read": "return ctta.Stream((ctta.Domain('a', 0, np.arange(2), None),), 3)",
}


def must_be_a_sentence(error):
    text = str(error)
    assert len(text) < 2000
    assert text.isprintable()
    assert "cannot be used (" in text or "There is no" in text


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_what_is_not_there(spec, attempt):
    with pytest.raises(ConfigError) as error:
        find(spec)
    must_be_a_sentence(error.value)
    attempt("methods of one's own that fail")
    with pytest.raises(CttaError):
        open_stream(Data(dataset=spec))
    attempt("data of one's own that fail")


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_as_it_is_imported(name, tmp_path, attempt):
    code, path = FAILING[name], tmp_path / "mine.py"
    path.write_bytes(code if isinstance(code, bytes) else (PRELUDE + code).encode())
    for use in (find, lambda spec: open_stream(Data(dataset=spec))):
        with pytest.raises(ConfigError) as error:
            use(f"{path}:make")
        must_be_a_sentence(error.value)
    attempt("methods of one's own that fail")
    attempt("data of one's own that fail")


@pytest.mark.parametrize("name", DATA)
def test_what_is_returned(name, tmp_path, attempt):
    path = own.write(tmp_path / "mine.py", f"{PRELUDE}\ndef make():\n    {DATA[name]}\n")
    with pytest.raises(ConfigError) as error:
        open_stream(Data(dataset=f"{path}:make"))
    must_be_a_sentence(error.value)
    attempt("data of one's own that fail")


def test_ctrl_c_is_ctrl_c(tmp_path, attempt):
    path = own.write(tmp_path / "mine.py", "raise KeyboardInterrupt")
    for use in (find, lambda spec: open_stream(Data(dataset=spec))):
        with pytest.raises(KeyboardInterrupt):
            use(f"{path}:make")
        attempt("methods of one's own that fail")


@pytest.mark.parametrize("words", [["list", "methods"], ["list", "datasets"], ["list", "presets"]])
def test_a_package_that_is_broken_does_not_break_the_lists(words, tmp_path, monkeypatch, attempt):
    own.write_package(tmp_path, "raise SystemExit(9)", "ctta.methods", bad="Bad", worse="Worse")
    monkeypatch.syspath_prepend(tmp_path)
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    attempt("broken packages")


def test_a_run_folder_names_a_method_that_is_not_looked_for(tmp_path, attempt):
    folder = write_fake_run(tmp_path / "run")
    trap = own.write(tmp_path / "trap.py", f"open({str(tmp_path / 'sprung')!r}, 'w').close()")
    head = folder.path / "run.json"
    head.write_text(head.read_text().replace('"method": "dss"', f'"method": "{trap}:Trap"'))
    made = CliRunner().invoke(app, ["report", str(folder.path)])
    assert made.exit_code == 0, made.output
    assert str(trap) in head.read_text()
    assert not (tmp_path / "sprung").exists()
    attempt("run folders that name code")
