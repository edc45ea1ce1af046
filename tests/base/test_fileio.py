"""Files: failures become one sentence, a file is replaced as a whole, a fingerprint sees what it reads."""

from __future__ import annotations

import sys

import pytest

from ctta.base import fileio
from ctta.base.errors import ConfigError, InputError


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf\n <!DOCTYPE html>", "a web page"),
        (b"<HTML>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "a git-lfs pointer"),
        (b"\x93NUMPY", ""),
    ],
)
def test_a_failed_download_is_recognised(tmp_path, content, found):
    path = tmp_path / "file.npy"
    path.write_bytes(content)
    assert fileio.impostor(path) == found
    words = f"is {found}, not an array" if found else r"cannot be read as an array \(ValueError\('bad'\)\)"
    with pytest.raises(InputError, match=words), fileio.reading(path, "an array"):
        raise ValueError("bad")


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="a file of that name is in the way"):
        fileio.make_folder(tmp_path / "out")
    fileio.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_as_a_whole(tmp_path, durable, monkeypatch):
    path = tmp_path / "new" / "file"
    fileio.write_atomically(path, b"old", durable=durable)
    fileio.write_atomically(path, b"new", durable=durable)
    assert [(one.name, one.read_bytes()) for one in path.parent.iterdir()] == [("file", b"new")]

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(InputError, match=r"file cannot be written: disk full\."):
        fileio.write_atomically(path, b"newer", durable=durable)
    assert [(one.name, one.read_bytes()) for one in path.parent.iterdir()] == [("file", b"new")]


def test_a_fingerprint_is_of_names_lengths_and_ends(tmp_path):
    def made(name: str, content: bytes, ends: int) -> str:
        (tmp_path / name).write_bytes(content)
        return fileio.fingerprint(tmp_path, [name], ends)

    first = made("a", b"0123456789", 2)
    assert made("a", b"01xxxxxx89", 2) == first, "the middle is not read"
    others = [made("b", b"0123456789", 2), made("a", b"01234567890", 2), made("a", b"x123456789", 2)]
    others += [made("a", b"012345678x", 2), made("a", b"0123456789", 3)]
    assert len({first, *others}) == 6
    assert made("a", b"0123456789", 0) == made("a", b"x12345678x", 0), "without ends only names and lengths count"


def test_some_names_and_how_many_more():
    assert fileio.some(["a", "b", "c"], 3) == "a, b, c"
    assert fileio.some(["a", "b", "c"], 2) == "a, b ... and 1 more"


def test_an_optional_package_that_is_missing_or_broken(tmp_path, monkeypatch):
    assert fileio.optional_import("json.decoder", "x", "this").JSONDecoder
    with pytest.raises(ConfigError, match=r"^Tracking needs no_such_package .*pip install 'ctta\[track\]'"):
        fileio.optional_import("no_such_package.part", "track", "Tracking")
    (tmp_path / "broken_package.py").write_text("raise ImportError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"installed but cannot be imported \(undefined symbol\)"):
        fileio.optional_import("broken_package", "track", "Tracking")
    assert "broken_package" not in sys.modules
