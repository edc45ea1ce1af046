"""What numbers were made with."""

from __future__ import annotations

import json
import subprocess

import torch

from ctta.core.device import KINDS, Kind
from ctta.core.execution import Execution
from ctta.running.environment import commit, environment


def test_the_threads_are_those_of_whoever_computes():
    found = environment()
    assert (found["threads"], environment(threads=7)["threads"]) == (torch.get_num_threads(), 7)
    assert json.loads(json.dumps(found)) == found
    assert all(found.values())


def test_the_stamp_names_device_driver_and_precision(monkeypatch):
    assert (environment()["device"], environment()["precision"]) == ("cpu", "full")
    assert "driver" not in environment()
    kind = Kind(named=lambda device: f"Product {device.index}", driver=lambda: "550.54, CUDA 12.4")
    monkeypatch.setitem(KINDS, "cuda", kind)
    found = environment(Execution(device="cuda:1", precision="bfloat16"))
    assert (found["device"], found["accelerator"]) == ("cuda:1", "Product 1")
    assert (found["driver"], found["precision"]) == ("550.54, CUDA 12.4", "bfloat16")


def test_the_commit_is_that_of_the_file(tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    file = tmp_path / "code.py"
    file.write_text("a")
    assert commit(file) == ""
    git("init", "-q")
    assert commit(file) == "", "it is in a repository that does not have it, as an installed package can be"
    git("add", "code.py")
    git("commit", "-q", "-m", "first")
    git("tag", "-a", "v1", "-m", "v1")
    assert commit(file) == git("rev-parse", "HEAD")
    file.write_text("b")
    assert commit(file) == git("rev-parse", "HEAD") + "-dirty"
    monkeypatch.setenv("PATH", "")
    assert commit(file) == "", "without git"
