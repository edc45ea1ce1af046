"""`ctta adapt`: predictions for samples without labels."""

from __future__ import annotations

import csv

import numpy as np
from PIL import Image

from command_line import ctta


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
    assert "preset 'cifar10' by input (3, 32, 32)" in err
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
