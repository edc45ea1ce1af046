"""`ctta train`: a training that is killed goes on."""

from __future__ import annotations

import json

import torch
from safetensors.torch import load_file

import held
from command_line import ctta, start, wait_for


def test_a_killed_training_continues(tmp_path, monkeypatch):
    spec = {
        "data": {"dataset": "embedded", "images": 60},
        "model": {"factory": "held:network"},
        "train": {"epochs": 3, "batch": 20},
    }
    (tmp_path / "train.yaml").write_text(json.dumps(spec))
    words = ("train", tmp_path / "train.yaml", "-q", "--checkpoint-seconds", "0", "-o")
    monkeypatch.setenv(held.FOLDER, str(tmp_path))
    process = start(*words, tmp_path / "a.safetensors")
    wait_for(tmp_path / "held", process)
    process.kill()
    process.communicate()
    monkeypatch.delenv(held.FOLDER)
    assert (tmp_path / "a.checkpoint").exists()
    assert not (tmp_path / "a.safetensors").exists()
    for name in ("a", "b"):
        code, out, err = ctta(*words, tmp_path / f"{name}.safetensors")
        assert code == 0, err
        assert "train error" in out
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("a", "b"))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert (tmp_path / "a.jsonl").read_text().count("\n") == 3


def test_a_wrong_setting_is_an_error(tmp_path):
    (tmp_path / "train.yaml").write_text("{}")
    code, _, err = ctta("train", tmp_path / "train.yaml", "-o", tmp_path / "a.safetensors", "--set", "train.epoch=3")
    assert code == 2
    assert "Did you mean 'epochs'?" in err
