"""Misuse of the command line, factories that fail, and what is left for the last resort."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import held
from command_line import PATIENCE, ctta, start, wait_for
from ctta.base.errors import ConfigError
from ctta.base.lock import locked
from ctta.cli.app import app
from ctta.models import from_factory
from ctta.records.run_folder import RunFolder
from sentences import must_be_a_sentence, said

FACTORIES = {
    "it raises": ("def make(): raise ValueError('no luck')", "ValueError: no luck"),
    "its words raise": ("class E(Exception):\n def __str__(self): raise KeyError\ndef make(): raise E", "(E)"),
    "it needs arguments": ("def make(size): return size", "TypeError"),
    "it is not callable": ("make = 5", "TypeError"),
    "it is not there": ("", "AttributeError"),
    "it returns nothing": ("def make(): pass", "returned NoneType"),
    "it returns a class": ("import torch\ndef make(): return torch.nn.Linear", "returned type"),
    "its module is half made": (
        "import torch\nclass M(torch.nn.Module):\n def __init__(self): pass\nmake = M",
        "AttributeError",
    ),
    "a mistake in the syntax": ("def make(:", "SyntaxError"),
    "an indentation": (" x\n  y", "IndentationError"),
    "a package that is missing": ("import nowhere", "ModuleNotFoundError"),
    "sys.exit": ("import sys\ndef make(): sys.exit(0)", "SystemExit"),
    "sys.exit in the file": ("import sys; sys.exit('bye')", "SystemExit: bye"),
    "memory": ("def make(): raise MemoryError", "MemoryError"),
    "recursion": ("def make(): return make()", "RecursionError"),
    "an assertion": ("def make(): assert False, 'x' * 10**6", "AssertionError"),
    "escapes": ("def make(): raise ValueError('\\x1b[31m\\n[/red]')", "ValueError"),
    "a stop": ("def make(): raise StopIteration", "StopIteration"),
    "not UTF-8": (b"# \xff\xfe\ndef make(): pass", "Error"),
    "NUL": (b"\0", "Error"),
}
SPECS = [
    "",
    ":",
    "x:",
    ":x",
    "x",
    "os:getcwd",
    "nowhere.at_all:f",
    "..up:f",
    "os.path:sep",
    "a b:c",
    "none.py:f",
    "~nosuchuser/x.py:f",
    "/:f",
    "x.py:f:g",
    "é:é",
    "y" * 5000 + ":f",
    "y" * 5000 + ".py:f",
]


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_that_fails(name, tmp_path, attempt, capsys):
    content, words = FACTORIES[name]
    path = tmp_path / "factory.py"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    _, code, text = said(lambda: from_factory(f"{path}:make"), capsys)
    must_be_a_sentence(code, text)
    assert "factory.py" in text
    assert words in text
    attempt("factories that fail")


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_a_factory_that_is_not_there(spec, attempt):
    with pytest.raises(ConfigError):
        from_factory(spec)
    attempt("factories that fail")


def test_ctrl_c_in_a_factory_is_ctrl_c(tmp_path, attempt, capsys):
    (tmp_path / "f.py").write_text("def make(): raise KeyboardInterrupt")
    _, code, text = said(lambda: from_factory(f"{tmp_path / 'f.py'}:make"), capsys)
    assert code == 130
    assert "Stopped. What was complete is kept" in text
    attempt("factories that fail")


MISUSES = [
    [],
    ["nothing"],
    ["run"],
    ["run", "none.yaml"],
    ["run", "."],
    ["run", "x", "y"],
    ["run", "--nothing"],
    ["run", "none.yaml", "--engine", "slurm"],
    ["run", "none.yaml", "--workers", "0"],
    ["run", "none.yaml", "--workers", "2"],
    ["run", "none.yaml", "--workers", "x"],
    ["run", "none.yaml", "--threads", "-1"],
    ["run", "none.yaml", "--address", "x"],
    ["run", "none.yaml", "--set"],
    ["run", "none.yaml", "--checkpoint-seconds", "x"],
    ["check"],
    ["check", "none.yaml"],
    ["check", "/dev/null"],
    ["check", "\udcff"],
    ["check", "x" * 5000],
    ["report"],
    ["report", "none"],
    ["report", "/dev/null"],
    ["report", "x" * 5000],
    ["report", "--check", "none.json"],
    ["report", "--check", "/dev/null"],
    ["report", "--check", "."],
    ["report", "--check", "x" * 5000],
    ["report", "none", "--check", "none.json"],
    ["report", "none", "--keep", "."],
    ["track", "none", "--to", "x"],
    ["track", "none"],
    ["train", "none.yaml"],
    ["train", "none.yaml", "-o", "x"],
    ["list", "nothing"],
    ["list", "methods", "nothing"],
    ["list", "models", "resnet18"],
    ["list", "x" * 5000],
    ["list", "\x1b[31m"],
    ["list", "[/red]"],
    ["corrupt", "none", "out"],
    ["corrupt", "none", "out", "--severity", "9"],
    ["corrupt", "none", "out", "--severity", "x" * 5000],
    ["corrupt", "none", "out", "--corruption", "x"],
    ["corrupt", "none", "out", "--format", "x"],
    ["corrupt", "none", "out", "--seed", "-1"],
    ["adapt", "embedded"],
    ["adapt", "embedded", "none"],
    ["adapt", "nothing", "none"],
    ["adapt", "none.py:make", "none"],
    ["adapt", "embedded", ".", "--method", "x"],
    ["adapt", "embedded", ".", "--set", "preset=x"],
    ["adapt", "embedded", ".", "--set", "method=tent"],
    ["adapt", "embedded", ".", "--set", "lrr=5"],
    ["adapt", "embedded", ".", "--mean", "x"],
    ["adapt", "embedded", ".", "--mean", "["],
    ["adapt", "embedded", ".", "--mean", ""],
    ["adapt", "embedded", ".", "--batch", "0"],
    ["adapt", "embedded", ".", "--mean", "1,2", "--std", "1,2"],
    ["adapt", "embedded", ".", "--seed", "-1"],
    ["adapt", "eata", ".", "--method", "eata"],
    ["--nothing"],
    ["--debug"],
    ["--debug", "nothing"],
    ["demo", "--set", "methods.x=5"],
    ["demo", "--set", "method.lrr=5"],
    ["demo", "--set", "seeds=[0, 0]"],
]


@pytest.mark.parametrize("words", MISUSES, ids=lambda words: " ".join(words)[:40] or "nothing")
def test_misuse_is_explained(words, attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = CliRunner(env={"COLUMNS": "120"}).invoke(app, words)
    assert made.exit_code == 2, made.output
    assert made.output.strip()
    assert "Traceback" not in made.output
    assert "unexpected happened" not in made.output
    assert not list(tmp_path.iterdir()), "nothing was written"
    attempt("misuse of the command line")


MODEL = """
import torch, tiny
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = tiny.network()
    def forward(self, x):
        {body}
"""
FORWARDS = {
    "a key": "raise KeyError('k')",
    "an attribute": "return x.nothing",
    "an assertion": "assert False",
    "a stop": "raise StopIteration",
    "an exit": "raise SystemExit(1)",
    "a quiet exit": "raise SystemExit(0)",
    "a division": "return 1 / 0",
    "NaN": "return self.inner(x) * float('nan')",
    "escapes": "raise RuntimeError('\\x1b[31mred\\n' * 50)",
}


@pytest.mark.parametrize("name", FORWARDS)
def test_a_model_that_fails_ends_in_a_sentence_and_in_no_complete_run(name, attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL.format(body=FORWARDS[name]))
    data = {"domains": ["fog"], "images": 4, "batch": 2}
    spec = {"data": data, "model": {"name": None, "factory": "m.py:M"}, "methods": ["source", "tent"]}
    (tmp_path / "x.yaml").write_text(json.dumps(spec))
    np.savez("x.npz", images=np.zeros((4, 32, 32, 3), np.uint8), labels=np.arange(4))
    arrays = {"data": {"dataset": "arrays", "path": "x.npz"}, "model": spec["model"], "train": {"epochs": 1}}
    (tmp_path / "t.yaml").write_text(json.dumps(arrays))
    words = [["check", "x.yaml"], ["run", "x.yaml", "-q", "-o", "out"], ["adapt", "m.py:M", "x.npz", "-q"]]
    for one in [*words, ["train", "t.yaml", "-q", "-o", "w.safetensors"]]:
        made = CliRunner(env={"COLUMNS": "120"}).invoke(app, one)
        assert made.exit_code in (1, 2), (one, made.output)
        assert made.output.strip()
        assert all(words not in made.output for words in ("Traceback", "unexpected happened", "\x1b")), made.output
        attempt("models that fail in a command")
    assert not list(tmp_path.rglob("*.done.json"))
    assert not (tmp_path / "w.safetensors").exists()


def test_a_model_that_answers_nan_from_a_later_batch_on(attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = "return self.inner(x) * (float('nan') if x.std() < 0.15 else 1)"  # as that of the second domain is
    (tmp_path / "m.py").write_text(MODEL.format(body=body))
    data = {"domains": ["gaussian_noise", "contrast"], "images": 20, "batch": 4}
    spec = {"data": data, "model": {"name": None, "factory": "m.py:M"}, "methods": ["source", "tent"]}
    (tmp_path / "x.yaml").write_text(json.dumps(spec))
    for _ in range(2):  # once more, from where it was
        made = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["run", "x.yaml", "-q", "-o", "out"])
        assert made.exit_code == 1, made.output
        assert made.output.count("The model answers NaN or infinity for 4 of 4 samples") == 2
        assert "2 runs failed" in made.output
        assert "Traceback" not in made.output
        assert not list(tmp_path.rglob("*.done.json"))
        for name in ("source", "tent"):
            records = list(RunFolder(tmp_path / "out").records(f"{name}-s0"))
            assert [record.domain for record in records] == ["gaussian_noise"] * 5
            assert not any(record.not_finite() for record in records)
        attempt("models that fail in a command")


@pytest.mark.parametrize("word", ["adapt", "adapt --report", "train", "corrupt", "demo --fresh"])
def test_a_place_that_another_process_writes_to(word, attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", images=np.zeros((4, 32, 32, 3), np.uint8), labels=np.arange(4))
    model = {"name": None, "factory": "tiny:network"}
    arrays = {"data": {"dataset": "arrays", "path": "x.npz", "domains": "clean"}, "model": model}
    (tmp_path / "t.yaml").write_text(json.dumps(arrays | {"train": {"epochs": 1}}))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").write_text("{}")
    words, place = {
        "adapt": (["adapt", "tiny:network", "x.npz", "-q", "-o", "x.csv", "--force"], "x.csv"),
        "adapt --report": (["adapt", "tiny:network", "x.npz", "-q", "--report", "out", "--force"], "out"),
        "train": (["train", "t.yaml", "-q", "-o", "w.safetensors"], "w.safetensors"),
        "corrupt": (["corrupt", "x.npz", "out", "--corruption", "fog", "--severity", "1", "-q"], "out/.progress"),
        "demo --fresh": (["demo", "--fresh", "-o", "out", "-q"], "out"),
    }[word]
    with locked(Path(place), file=place.startswith(("x", "w"))):
        before = sorted(tmp_path.rglob("*"))
        made = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
        assert made.exit_code == 2, made.output
        assert f"{place} is locked by process {os.getpid()} on" in made.output
        assert sorted(tmp_path.rglob("*")) == before
    attempt("two processes in one folder")


def as_folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


OUTPUTS = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:9]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256))),
    "a folder": as_folder,
}


@pytest.mark.parametrize("name", ["x.csv", "out/run.json", "out/tent-s0.jsonl", "out/tent-s0.done.json"])
@pytest.mark.parametrize("damage", OUTPUTS)
def test_damaged_predictions_are_overwritten_by_force_only(name, damage, attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((4, 32, 32, 3), np.uint8))
    words = ["adapt", "tiny:network", "x.npy", "-q", "-o", "x.csv", "--report", "out", "--method", "tent"]
    assert CliRunner().invoke(app, words).exit_code == 0
    whole = (tmp_path / "x.csv").read_bytes()
    OUTPUTS[damage](tmp_path / name)
    made = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
    assert made.exit_code == 2
    assert "would be overwritten. Use --force, or give another name." in made.output
    made = CliRunner(env={"COLUMNS": "300"}).invoke(app, [*words, "--force"])
    if damage == "a folder":
        assert made.exit_code == 2, made.output
        assert f"{name} cannot be written: Is a directory" in made.output
    else:
        assert made.exit_code == 0, made.output
        assert (tmp_path / "x.csv").read_bytes() == whole
    attempt("damaged predictions")


def test_places_to_write_to_that_cannot_be(attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((4, 32, 32, 3), np.uint8))
    (tmp_path / "file").touch()
    small = ["--set", "data={images: 2, batch: 2, domains: [fog]}", "--set", "methods=[source]", "-q"]
    for words, sentence in [
        (["adapt", "tiny:network", "x.npy", "-q", "-o", ""], "is no name of a file"),
        (["demo", "-o", "out", *small, "--set", "data.cache=file"], "file cannot be made a folder: a file of that"),
    ]:
        made = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
        assert made.exit_code in (1, 2), made.output
        assert sentence in made.output
        attempt("misuse of the command line")


def test_a_size_of_point_clouds_is_refused(attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    np.save("x.npy", np.zeros((4, 32, 3), np.float32))
    np.save("folder/x.npy", np.zeros((32, 3), np.float32))
    for place in ("x.npy", "folder"):
        made = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["adapt", "embedded_clouds", place, "--size", "32", "-q"])
        assert made.exit_code == 2, made.output
        assert "holds point clouds, which have no size in pixels and no colours. Remove --size." in made.output
        attempt("misuse of the command line")


def test_a_fresh_demo_removes_nothing_but_the_run(attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    words = [
        "demo",
        "-o",
        ".",
        "--set",
        "data={images: 2, batch: 2, domains: [fog]}",
        "--set",
        "methods=[source]",
        "-q",
    ]
    for more in ([], ["--fresh", "--set", "seeds=[1]"]):
        made = CliRunner().invoke(app, [*words, *more])
        assert made.exit_code == 0, made.output
        attempt("misuse of the command line")
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["source-s1.jsonl"]


def test_a_folder_whose_name_is_no_text_can_be_read_again(attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "data={images: 2, batch: 2, domains: [fog]}", "--set", "methods=[source]", "-q"]
    words = ["demo", "-o", "\udcff", *small]
    monkeypatch.setattr(sys, "argv", ["ctta", *words])
    for _ in range(2):
        made = CliRunner().invoke(app, words)
        assert made.exit_code == 0, made.output
        attempt("misuse of the command line")


ERRORS = [
    (
        OSError(errno.ENOSPC, "No space left on device", "runs/x.jsonl"),
        2,
        "runs/x.jsonl: No space left on device. Free some",
    ),
    (OSError(errno.EROFS, "Read-only file system", "runs"), 2, "runs: Read-only file system. Give a place"),
    (PermissionError(errno.EACCES, "Permission denied", "runs"), 2, "runs: Permission denied. Change"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), 2, "x: No such file"),
    (OSError("odd"), 2, "odd"),
    (EOFError(), 2, "A file is damaged"),
    (zlib.error("bad"), 2, "A file is damaged"),
    (struct.error("bad"), 2, "A file is damaged"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 2, "A file is damaged"),
    (MemoryError(), 2, "not enough memory"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 4, "not enough memory"),
    (RecursionError("deep"), 4, "nested too deeply"),
    (RuntimeError("x" * 10**6), 4, "unexpected"),
    (KeyError("k"), 4, "KeyError: 'k'"),
    (ValueError("\x1b[31m[/red]\u202e"), 4, "[/red]"),
    (ZeroDivisionError(), 4, "ZeroDivisionError"),
    (SystemExit(0), 4, "ended the program"),
    (KeyboardInterrupt(), 130, "What was complete is kept"),
]


@pytest.mark.parametrize(("error", "code", "words"), ERRORS, ids=lambda value: type(value).__name__)
def test_the_last_resort(error, code, words, attempt, capsys, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr(sys, "argv", ["ctta", "run", "x y.yaml"])
    _, ended, text = said(fail, capsys)
    assert ended == code
    assert words in text
    assert "Traceback" not in text
    assert max(map(len, text.split("\n"))) < 400
    assert ("ctta --debug run 'x y.yaml'" in text) == (code != 130)
    monkeypatch.setattr(sys, "argv", ["ctta", "--debug", "run", "x.yaml"])
    _, _, text = said(fail, capsys)
    assert ("Traceback" in text and "in fail" in text) == (code != 130)
    attempt("errors that nobody expected")


def test_every_verb_has_the_last_resort():
    assert all(command.callback.__wrapped__ for command in app.registered_commands)


def test_a_reader_who_goes_away_and_a_debugged_error(tmp_path, attempt):
    process = start("list", "corruptions")
    process.stdout.close()
    with process.stderr:
        err = process.stderr.read()
    process.wait(PATIENCE)
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    (tmp_path / "x.yaml").write_text("data: [")
    code, _, err = ctta("check", tmp_path / "x.yaml", "--debug")
    assert code == 2
    assert "Traceback" in err
    assert err.strip().split("\n")[-1].startswith("error ")
    attempt("errors that nobody expected", 2)


def test_ctrl_c_before_anything_was_done(tmp_path, attempt):
    os.mkfifo(tmp_path / "begun")
    (tmp_path / "f.py").write_text(
        f"import time\ndef make():\n    open({str(tmp_path / 'begun')!r}, 'w').close()\n    time.sleep({PATIENCE})\n"
    )
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps({"data": {"images": 5}, "model": {"factory": f"{tmp_path / 'f.py'}:make"}}))
    process = start("check", path)
    (tmp_path / "begun").read_text()  # waits until the factory is at work
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Stopped. What was complete is kept; the same command continues or starts again." in " ".join(err.split())
    assert "Aborted" not in err
    assert "Traceback" not in err
    attempt("errors that nobody expected")


def test_ctrl_c_keeps_the_predictions_that_were_made(tmp_path, attempt, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((8, 32, 32, 3), np.uint8))
    monkeypatch.setenv(held.FOLDER, str(tmp_path / "out"))
    out = tmp_path / "x.csv"
    words = ("adapt", "held:network", tmp_path / "x.npy", "-o", out, "--report", tmp_path / "out", "--method", "tent")
    process = start(*words, "--batch", "2", "-q")
    wait_for(tmp_path / "out" / "held", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    kept = len(out.read_text().splitlines()) - 1
    assert f"{out} holds the first {kept} of 8 samples." in " ".join(err.split())
    assert "Traceback" not in err
    assert len((tmp_path / "out" / "tent-s0.jsonl").read_text().splitlines()) == 1
    assert not (tmp_path / "out" / "tent-s0.done.json").exists()
    assert not list(tmp_path.rglob("*.lock"))
    attempt("interrupts of a command")


WAITS = """
import os, threading, pathlib, torch, tiny
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = tiny.network()
    def forward(self, x):
        if pathlib.Path("w.checkpoint").exists() and "WAIT" in os.environ:
            pathlib.Path("held").touch()
            threading.Event().wait()
        return self.inner(x)
"""


def test_ctrl_c_keeps_the_checkpoint_of_a_training(tmp_path, attempt, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(WAITS)
    np.savez("x.npz", images=np.zeros((8, 32, 32, 3), np.uint8), labels=np.arange(8))
    data = {"dataset": "arrays", "path": "x.npz", "domains": "clean"}
    spec = {"data": data, "model": {"name": None, "factory": "m.py:M"}, "train": {"epochs": 2, "batch": 4}}
    (tmp_path / "t.yaml").write_text(json.dumps(spec))
    words = ["train", "t.yaml", "-q", "-o", "w.safetensors", "--checkpoint-seconds", "0"]
    monkeypatch.setenv("WAIT", "1")
    process = start(*words)
    wait_for(tmp_path / "held", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "The same command continues from the last checkpoint." in " ".join(err.split())
    assert "Traceback" not in err
    assert (tmp_path / "w.checkpoint").exists()
    assert not (tmp_path / "w.safetensors").exists()
    monkeypatch.delenv("WAIT")
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert (tmp_path / "w.safetensors").exists()
    attempt("interrupts of a command")


def test_names_of_tensors_and_classes_reach_the_terminal_without_escapes(tmp_path, attempt, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((4, 32, 32, 3), np.uint8))
    evil = "\x1b]0;owned\x07\x1b[31m\u202e\r"
    save_file({f"{evil}fc.weight": torch.zeros(10, 8)}, "w.safetensors")
    (tmp_path / "classes.txt").write_text("".join(f"{evil.strip()}class {number}\n" for number in range(10)))
    plain = ["adapt", "tiny:network", "x.npy", "-q", "--classes", "classes.txt", "--method", "tent"]
    for words, code in [
        (["adapt", "resnet18", "x.npy", "--weights", "w.safetensors"], 2),
        ([*plain, "-o", "a.csv", "--report", "out"], 0),
        (["report", "out"], 0),
        ([*plain, "-o", "b.csv", "--set", "lrr=\x1b[31m"], 2),
    ]:
        made = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
        assert made.exit_code == code, made.output
        assert not [letter for letter in made.output if letter in "\x1b\x07\u202e"], repr(made.output)
        attempt("names with escapes")
    for path in (tmp_path / "a.csv", tmp_path / "out" / "report.html"):
        assert "class" in path.read_text()
        assert not set("\x1b\x07\u202e") & set(path.read_text()), path
