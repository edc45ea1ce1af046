"""Code of one's own: found by module or file, run once, hashed, and every failure a sentence."""

from __future__ import annotations

import pickle
import sys

import pytest

import own
from ctta.base import own_code
from ctta.base.errors import ConfigError

SHAPES = """
class Circle:
    class Arc:
        pass
"""


def test_by_module_and_by_file(tmp_path, monkeypatch):
    path = own.write(tmp_path / "my_shapes.py", SHAPES)
    monkeypatch.syspath_prepend(tmp_path)
    by_module, by_file = own_code.load("my_shapes:Circle"), own_code.load(f"{path}:Circle")
    assert by_module is sys.modules["my_shapes"].Circle
    assert by_file is not by_module
    assert own_code.load(f"{path}:Circle.Arc") is by_file.Arc
    assert isinstance(pickle.loads(pickle.dumps(by_file())), by_file)


def test_a_file_is_run_once_and_again_if_its_content_changes(tmp_path):
    runs = tmp_path / "runs"
    code = f"with open({str(runs)!r}, 'a') as file:\n    file.write('x')\nVALUE = 1\n"
    path = own.write(tmp_path / "mine.py", code)
    assert [own_code.load(f"{path}:VALUE") for _ in range(2)] == [1, 1]
    assert runs.read_text() == "x"
    own.write(path, code.replace("VALUE = 1", "VALUE = 2"))  # of the same length, within the same second
    assert own_code.load(f"{path}:VALUE") == 2
    assert runs.read_text() == "xx"


def test_two_files_of_one_name_are_two(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        own.write(tmp_path / name / "mine.py", SHAPES)
    one, other = (own_code.load(f"{tmp_path / name}/mine.py:Circle") for name in "ab")
    assert one is not other
    assert isinstance(pickle.loads(pickle.dumps(one())), one)


def test_a_file_that_fails_leaves_no_module_behind(tmp_path):
    path, before = own.write(tmp_path / "mine.py", "raise SystemExit(3)"), set(sys.modules)
    words = r"The shape 'mine' cannot be used \(SystemExit: 3\)"
    with pytest.raises(ConfigError, match=words), own_code.usable("shape", "mine", "a shape"):
        own_code.load(f"{path}:Circle")
    assert not [name for name in set(sys.modules) - before if "mine" in name]


def test_the_hash_is_that_of_the_file(tmp_path):
    path = own.write(tmp_path / "mine.py", SHAPES)
    first = own_code.source_hash(own_code.load(f"{path}:Circle"))
    own.write(path, SHAPES + "\n# other\n")
    assert first != own_code.source_hash(own_code.load(f"{path}:Circle"))
    assert first == own_code.source_hash(own_code.load(f"{own.write(tmp_path / 'b.py', SHAPES)}:Circle"))


def test_names_that_packages_register(tmp_path, monkeypatch):
    own.write_package(tmp_path, SHAPES, "ctta.shapes", round="Circle", bent="Circle.Arc")
    monkeypatch.syspath_prepend(tmp_path)
    assert own_code.installed("ctta.shapes") == {"bent": "stranger:Circle.Arc", "round": "stranger:Circle"}
    assert own_code.place("round", "shape", "ctta.shapes", ["square"]) == "stranger:Circle"
    assert own_code.place("a.py:b", "shape", "ctta.shapes", ["square"]) == "a.py:b"
    with pytest.raises(ConfigError, match=r"There is no shape 'roun'. Did you mean 'round'\? Accepted: bent, round, s"):
        own_code.place("roun", "shape", "ctta.shapes", ["square"])
