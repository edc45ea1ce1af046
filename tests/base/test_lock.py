"""Locks: who holds one, and what is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ctta import ConfigError, StateError
from ctta.base.lock import locked, started


def test_a_folder_is_held_once_and_given_back(tmp_path):
    with locked(tmp_path / "new"), pytest.raises(StateError, match=f"is locked by process {os.getpid()} on"):
        locked(tmp_path / "new").__enter__()
    assert list((tmp_path / "new").iterdir()) == []


def test_the_lock_of_a_file_is_beside_it_and_is_not_that_of_its_neighbour(tmp_path):
    with locked(tmp_path / "a.csv", file=True), locked(tmp_path / "b.csv", file=True):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".a.csv.lock", ".b.csv.lock"]
    with pytest.raises(ConfigError, match="is no name of a file"):
        locked(Path(""), file=True).__enter__()


def test_temporaries_of_processes_that_are_gone_are_removed_and_no_others(tmp_path):
    gone, alive, other = f".x.{2**30}-0a.tmp", f".x.{os.getpid()}-0a.tmp", ".mine.tmp"
    for name in (gone, alive, other):
        (tmp_path / name).touch()
    with locked(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".lock", alive, other])


def test_when_a_process_started():
    assert started(os.getpid()) == started(os.getpid()) != ""
    assert started(2**30) == ""
