"""`ctta adapt`: predictions for samples without labels."""

from __future__ import annotations

import csv

import numpy as np
from PIL import Image

from command_line import ctta
from ctta.data.datasets.embedded import fashion_mnist


def test_predictions_without_labels(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("a10", "a2"):
        Image.fromarray(np.full((40, 30, 3), 90, np.uint8)).save(tmp_path / "photos" / f"{name}.png")
    (tmp_path / "photos" / "bad.jpg").write_text("a web page")
    (tmp_path / "model.py").write_text("from tiny import network as make\n")
    words = ("adapt", f"{tmp_path}/model.py:make", tmp_path / "photos", "-o", tmp_path / "out.csv", "--size", "32")
    own = ("--set", "lr=0.01", "--mean", "0.5,0.5,0.5", "--std", ".25,.25,.25")
    code, out, err = ctta(*words, "--method", "tent", "--report", tmp_path / "run", *own)
    assert code == 0, err
    assert "2 samples in" in out
    assert "1 could not be read" in out
    assert "preset 'cifar10+auto' by input (3, 32, 32)" in err
    assert "This stream has no labels" in (tmp_path / "run" / "report.html").read_text()
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == ["a2.png", "a10.png", "bad.jpg"]
    assert [bool(row["prediction"]) for row in rows] == [True, True, False]
    code, _, err = ctta(*words)
    assert code == 2
    assert "--force" in err
    code, _, err = ctta(*words, "--force", "--method", "dsss", "--mean", "half", "--batch", "0")
    assert code == 2
    assert all(part in err for part in ("Did you mean 'dss'?", "'mean'", "batch must be"))


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
