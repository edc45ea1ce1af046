"""`ctta adapt`: predictions for samples without labels."""

from __future__ import annotations

import csv
import signal

import numpy as np
import pytest
from PIL import Image

import held
from command_line import PATIENCE, ctta, start, wait_for
from ctta.base.lock import locked
from ctta.core.saving import SavedAdapter
from ctta.data.datasets.embedded import fashion_mnist


def test_predictions_without_labels(tmp_path):
    (tmp_path / "photos").mkdir()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 180, (40, 30, 3), np.uint8))
    for name in ("a10", "a2"):
        picture.save(tmp_path / "photos" / f"{name}.png")
    (tmp_path / "photos" / "bad.jpg").write_text("a web page")
    (tmp_path / "model.py").write_text("from tiny import network as make\n")
    words = ("adapt", f"{tmp_path}/model.py:make", tmp_path / "photos", "-o", tmp_path / "out.csv", "--size", "32")
    own = ("--set", "lr=0.01", "--mean", "0.5,0.5,0.5", "--std", ".25,.25,.25")
    code, out, err = ctta(*words, "--method", "tent", "--report", tmp_path / "run", *own)
    assert code == 0, err
    assert "2 samples in" in out
    assert "1 could not be read" in out
    assert "preset 'cifar10+auto' by input (3, 32, 32)" in err
    assert '<h1 class="verdict healthy">Healthy: no sign' in (tmp_path / "run" / "report.html").read_text()
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == ["a2.png", "a10.png", "bad.jpg"]
    assert [bool(row["prediction"]) for row in rows] == [True, True, False]
    code, _, err = ctta(*words)
    assert code == 2
    assert "--force" in err
    code, _, err = ctta(*words, "--force", "--method", "dsss", "--mean", "half", "--batch", "0")
    assert code == 2
    assert all(part in err for part in ("Did you mean 'dss'?", "'mean'", "batch must be"))


def test_a_model_of_grey_pictures(tmp_path):
    layers = "nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)"
    (tmp_path / "grey.py").write_text(f"from torch import nn\ndef make():\n    return nn.Sequential({layers})\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8))
    words = ("adapt", f"{tmp_path}/grey.py:make", tmp_path / "x.npy", "-o", tmp_path / "out.csv", "--force")
    code, _, err = ctta(*words)
    assert code == 2
    assert "`ctta adapt --channels 1`" in " ".join(err.split())
    code, _, err = ctta(*words, "--channels", "1")
    assert code == 0, err
    assert "4 samples (1, 8, 8)" in err


def test_harm_is_said_and_with_strict_an_exit_code(tmp_path):
    """At a rate that is far too high the guard takes back what was learned."""
    np.savez(tmp_path / "x.npz", images=fashion_mnist()[0][:320])
    words = (
        "adapt",
        "embedded",
        tmp_path / "x.npz",
        "-o",
        tmp_path / "out.csv",
        "--batch",
        "16",
        "--method",
        "tent",
        "-q",
    )
    code, said, err = ctta(*words, "--set", "lr=1", "--strict")
    assert code == 3, err
    assert "learning has made the model worse" in said
    code, said, _ = ctta(*words, "--force", "--strict")
    assert code == 0
    assert "Guard: no sign of harm." in said
    assert "unadapted 0.9" in said
    code, said, _ = ctta(*words, "--force", "--no-guard", "--set", "lr=1", "--strict")
    assert code == 0
    assert "No guard watched" in said


def test_clean_samples_tell_of_a_change_which_is_no_harm(tmp_path):
    images = fashion_mnist()[0]
    np.savez(tmp_path / "clean.npz", images=images[:200])
    np.savez(tmp_path / "same.npz", images=images[200:400])
    np.savez(tmp_path / "dark.npz", images=images[200:400] // 8)
    np.savez(tmp_path / "small.npz", images=images[:30, :16, :16])
    own = ("-o", tmp_path / "out.csv", "--method", "source", "-q", "--force", "--strict", "--batch", "16")
    clean = ("--clean", tmp_path / "clean.npz")
    for name, changed in (("same", False), ("dark", True)):
        code, said, err = ctta("adapt", "embedded", tmp_path / f"{name}.npz", *own, *clean)
        assert code == 0, err
        assert ("the stream is not like the clean samples" in said) is changed
        assert "Guard: no sign of harm." in said
    code, _, err = ctta("adapt", "embedded", tmp_path / "same.npz", *own, *clean, "--no-guard")
    assert code == 2
    assert "--clean is for the guard" in err
    (tmp_path / "model.py").write_text("from tiny import network as make\n")
    model = f"{tmp_path}/model.py:make"
    code, _, err = ctta("adapt", model, tmp_path / "same.npz", *own, "--clean", tmp_path / "small.npz")
    assert code == 2
    assert "have shape (3, 16, 16), the others (3, 32, 32)" in err


def predictions(path):
    return [{**row, "batch": ""} for row in csv.DictReader(path.read_text().splitlines())]


@pytest.mark.parametrize("method", ["dss", "tent"])
def test_a_state_carried_over_three_processes_gives_what_one_process_gives(tmp_path, method):
    images = np.random.default_rng(0).integers(0, 256, (36, 32, 32, 3), np.uint8)
    views = ("--set", "views=2", "--set", "augmentation_threshold=1.0") if method == "dss" else ("--set", "lr=0.01")
    words = ("--batch", "6", "--method", method, "--detect", "-q", *views)
    rows = []
    for day in range(3):
        np.save(tmp_path / "x.npy", images[12 * day : 12 * day + 12])
        carried = ("-o", tmp_path / f"{day}.csv", "--state", tmp_path / "state.safetensors")
        code, out, err = ctta("adapt", "tiny:network", tmp_path / "x.npy", *carried, *words)
        assert code == 0, err
        assert f"after {2 * day + 2} batches in all" in out
        rows += predictions(tmp_path / f"{day}.csv")
    np.save(tmp_path / "x.npy", images)
    whole = ("-o", tmp_path / "all.csv", "--state", tmp_path / "whole.safetensors")
    code, _, err = ctta("adapt", "tiny:network", tmp_path / "x.npy", *whole, *words)
    assert code == 0, err
    wanted = predictions(tmp_path / "all.csv")
    numbered = [{**row, "file": ""} for row in (*rows, *wanted)]
    assert numbered[:36] == numbered[36:]
    assert (tmp_path / "state.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_ctrl_c_keeps_what_was_learned(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8))
    state, report = tmp_path / "state.safetensors", tmp_path / "run"
    monkeypatch.setenv(held.FOLDER, str(report))
    words = ("adapt", "held:network", tmp_path / "x.npy", "-o", tmp_path / "out.csv", "--state", state, "-q")
    process = start(*words, "--report", report, "--batch", "8", "--method", "tent")
    wait_for(report / "held", process)
    with pytest.raises(Exception, match="is locked by process"), locked(state, file=True):
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "state.safetensors holds what was learned" in err
    assert SavedAdapter.read(state).about["batches"] == 1
    assert not list(tmp_path.glob(".*"))
