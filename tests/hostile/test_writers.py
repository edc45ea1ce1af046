"""Several writers in one folder, writers that are killed, disks that are full, and names that lead elsewhere."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import socket

import pytest
from typer.testing import CliRunner

import held
from command_line import PATIENCE, ctta, start, wait_for
from ctta import CttaError, InputError, StateError
from ctta.base import fileio, lock
from ctta.base.fileio import safe_name, short_name
from ctta.base.lock import locked
from ctta.cli.app import app
from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.report.results import Results
from forks import TESTS, Script
from lock_race import race
from run_folders import assert_same_runs, cells, execute
from runs import run

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 20, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", "tent"],
}


def holder(**changes):
    """What a lock file says, of this process unless it is changed."""
    own = {"pid": os.getpid(), "host": socket.gethostname(), "started": lock.started(os.getpid()), "since": "today"}
    return json.dumps(own | changes)


def test_two_processes_in_one_folder(tmp_path, attempt, monkeypatch):
    folder, spec = tmp_path / "run", tmp_path / "spec.yaml"
    spec.write_text(json.dumps(SPEC | {"model": {"name": None, "factory": "held:network"}}))
    words = ("run", spec, "--out", folder, "--quiet")
    monkeypatch.setenv(held.FOLDER, str(folder))
    first = start(*words)
    wait_for(folder / "held", first)
    attempt("two processes in one folder")
    code, out, err = ctta(*words)
    said = " ".join(err.split())
    assert (code, out) == (2, "")
    assert f"is locked by process {first.pid} on {socket.gethostname()}, since 2" in said
    assert "Wait until it is complete, stop it, or give another place" in said
    attempt("two processes in one folder")
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0, "reading needs no lock"
    first.kill()
    first.communicate(timeout=PATIENCE)
    (folder / f".run.json.{first.pid}-00000000.tmp").write_text("half")
    monkeypatch.delenv(held.FOLDER)
    attempt("processes that were killed")
    code, _, err = ctta(*words)
    assert code == 0, err
    assert f"was left locked by process {first.pid}" in " ".join(err.split())
    assert sum(len(RunFolder(folder).records(cell)) for cell in cells(RunFolder(folder))) == 8
    assert not [path for path in folder.iterdir() if path.name.endswith((".lock", ".tmp"))]


@pytest.mark.parametrize(
    ("function", "when", "count"),
    [
        ("os:fsync", "before", 2),  # a file is written beside the one that it replaces
        ("ctta.base.fileio:Appender.write", "after", 5),  # a record is written, its checkpoint not
        ("ctta.running.method_run:_cut", "before", 1),  # the folder is locked, and nothing is done
        ("pathlib:Path.unlink", "before", 2),  # a lock is given back
    ],
)
def test_a_process_that_is_killed_leaves_a_folder_that_can_be_used(tmp_path, attempt, function, when, count):
    whole, out, spec = run(SPEC, tmp_path / "whole"), tmp_path / "out", tmp_path / "spec.yaml"
    spec.write_text(json.dumps(SPEC))
    words = ["run", str(spec), "--out", str(out), "--quiet", "--checkpoint-seconds", "0"]
    killed = Script(TESTS / "killed_run.py", function, when, count, *words)
    _, err = killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL, err
    attempt("processes that were killed")
    list(execute(experiments.make(SPEC), RunFolder(out)))
    assert_same_runs(whole, RunFolder(out))
    assert not [path for path in out.rglob(".*") if path.name.endswith((".lock", ".tmp"))]


@pytest.mark.parametrize(
    ("engine", "kills", "latest"),
    [((), 5, 2500), (("--engine", "local", "--workers", "1"), 2, 900)],
    ids=["one process", "a worker"],
)
def test_a_run_that_is_killed_at_random_moments_ends_like_an_unbroken_one(tmp_path, attempt, engine, kills, latest):
    """Of 5,800 calls that an unbroken run makes to functions that run or record; 1,800 in the parent of a worker."""
    long = SPEC | {"data": SPEC["data"] | {"images": 40}}
    whole, out, spec = run(long, tmp_path / "whole"), tmp_path / "out", tmp_path / "spec.yaml"
    spec.write_text(json.dumps(long))
    moments = [random.Random(f"{engine} {number}").randrange(1, latest) for number in range(kills)]
    words = ["run", str(spec), "--out", str(out), "--json", "--checkpoint-seconds", "0", *engine]
    said, err = Script(TESTS / "killed_often.py", ",".join(map(str, [*moments, 0])), *words).communicate(PATIENCE)
    assert said.splitlines()[-1].split() == [str(-signal.SIGKILL)] * kills + ["0"], (moments, err)
    attempt("processes that were killed", kills)
    assert_same_runs(whole, RunFolder(out))
    assert not [path for path in out.rglob("*") if path.name.endswith((".lock", ".tmp", ".safetensors"))]


@pytest.mark.parametrize("flock", [True, False])
def test_a_lock_that_is_held(tmp_path, attempt, monkeypatch, flock):
    def without(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    if not flock:
        monkeypatch.setattr("fcntl.flock", without)
    with locked(tmp_path):
        attempt("locks that are held")
        with pytest.raises(StateError, match=rf"locked by process {os.getpid()} on"), locked(tmp_path):
            raise AssertionError
    with locked(tmp_path):
        pass
    path = tmp_path / ".lock"
    path.write_text(holder(host="elsewhere"))
    attempt("locks that are held")
    with pytest.raises(StateError, match=rf"on elsewhere.*cannot be seen.*if it is gone, remove {path}"):
        locked(tmp_path).__enter__()
    assert path.read_text() == holder(host="elsewhere"), "a lock that is refused is left as it was"


@pytest.mark.parametrize("flock", [True, False])
@pytest.mark.parametrize(
    "left",
    [holder(started="long ago"), holder(pid=2**30), "{}", "garbage", "[" * 9999, "\0" * 99, holder(pid="x")],
    ids=["other start", "no such process", "empty", "garbage", "deep", "zeros", "no number"],
)
def test_a_lock_that_was_left_behind(tmp_path, attempt, monkeypatch, caplog, flock, left):
    if not flock:
        monkeypatch.setattr(lock, "fcntl", None)
    (tmp_path / ".lock").write_text(left)
    attempt("locks that were left behind")
    with locked(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert "is taken over" in caplog.text
    assert not (tmp_path / ".lock").exists()


def test_a_folder_in_the_place_of_a_lock(tmp_path, attempt):
    (tmp_path / ".lock").mkdir()
    attempt("locks that were left behind")
    with pytest.raises(InputError, match=r"\.lock cannot be written: Is a directory"):
        locked(tmp_path).__enter__()


def test_many_processes_want_one_lock(tmp_path, attempt):
    context = multiprocessing.get_context("spawn")
    ready, go, won = context.Semaphore(0), context.Event(), context.Semaphore(0)
    crew = [context.Process(target=race, args=(tmp_path, ready, go, won)) for _ in range(3)]
    for one in crew:
        one.start()
    for _ in crew:
        assert ready.acquire(timeout=PATIENCE)
    go.set()
    for one in crew:
        one.join(PATIENCE)
        attempt("two processes in one folder", 20)
    assert [one.exitcode for one in crew] == [0] * len(crew)
    assert won.acquire(block=False)


@pytest.mark.parametrize("function", ["fsync", "write"])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_disk_that_is_full(tmp_path, attempt, monkeypatch, function, count):
    whole, folder, calls = run(SPEC, tmp_path / "whole"), RunFolder(tmp_path / "run"), 0
    original = getattr(os if function == "fsync" else fileio.Appender, function)

    def full(*arguments):
        nonlocal calls
        calls += 1
        if calls < count:
            return original(*arguments)
        if function == "write":
            appender, content = arguments
            original(appender, content[:7])
            with fileio.writing(appender._path):
                raise OSError(errno.ENOSPC, "No space left on device")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os if function == "fsync" else fileio.Appender, function, full)
    attempt("disks that are full")
    with pytest.raises(CttaError, match=r"cannot be written: No space left on device\. Free some space"):
        list(execute(experiments.make(SPEC), folder, checkpoint_seconds=0.0))
    kept = sum(len(path.read_bytes().splitlines()) for path in folder.path.glob("*.jsonl"))
    assert kept >= min(count - 2, 4) if function == "write" else True
    monkeypatch.undo()
    list(execute(experiments.make(SPEC), folder))
    assert_same_runs(whole, folder)


def test_a_file_that_may_not_grow(tmp_path, attempt):
    """The limit is the system's own, in a process of its own."""
    spec, out, limited = tmp_path / "spec.yaml", tmp_path / "run", tmp_path / "limited.py"
    spec.write_text(json.dumps(SPEC))
    limited.write_text(
        "import resource, ctta.cli\nresource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\nctta.cli.main()\n"
    )
    process = Script(limited, "run", spec, "--out", out, "-q")
    _, err = process.communicate(timeout=PATIENCE)
    attempt("disks that are full")
    assert process.returncode in (1, 2)
    assert "cannot be written: File too large" in " ".join(err.split())
    assert "Traceback" not in err
    list(execute(experiments.make(SPEC), RunFolder(out)))
    assert all(one.done for one in Results.load(out).method_runs)


BAD = ["../../x", "/etc/x", "a/b", "", ".", "..", "a\0b", "x" * 300, "con", "NUL.txt", "a\nb", " a", "a\\b", "é" * 99]


@pytest.mark.parametrize("name", BAD)
def test_names_that_lead_elsewhere(tmp_path, attempt, monkeypatch, name):
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC | {"name": name}))
    attempt("names that lead elsewhere")
    made = CliRunner().invoke(app, ["run", str(spec), "-q"])
    assert made.exit_code == 2
    assert made.output.startswith(("error name: ", f"error {spec} is not YAML"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [spec]
    with pytest.raises(CttaError, match="cannot be the name of a file or folder"):
        RunFolder(tmp_path).records_path(name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "漢" * 200, "a\nb", "..", "", "🙂"])
def test_rows_whose_names_cannot_be_files(attempt, name):
    attempt("names that lead elsewhere")
    with pytest.raises(CttaError, match="name"):
        experiments.make(SPEC | {"methods": [{"method": "source", "name": name}]})


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "x" * 120, "漢" * 40, "con", "NUL", "🙂 a"])
def test_rows_whose_names_are_strange_have_files_in_the_folder(tmp_path, attempt, name):
    spec = SPEC | {"methods": [{"method": "source", "name": name}]}
    attempt("names that lead elsewhere")
    folder = run(spec, tmp_path / "run")
    (cell,) = folder.run().cells
    assert cell.label == name
    assert folder.complete(cell.cell).batches == 4
    assert {path.parent for path in tmp_path.rglob("*.jsonl")} == {folder.path}


def test_long_names_stay_apart(attempt):
    attempt("names that lead elsewhere")
    one, two = (short_name("x" * 300 + end) for end in ("a", "b"))
    assert one != two
    assert safe_name(one) == one
