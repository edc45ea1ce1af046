"""The command line as a user types it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from command_line import ctta, start
from ctta import METHODS
from ctta.data.corruptions import NAMES
from ctta.data.protocols import KINDS
from ctta.models import MODELS

SPEC = {
    "data": {"domains": ["fog", "contrast"], "images": 40, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", {"method": "dss", "views": 2, "gate": 1.0}],
}


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC))
    return path


def test_help_has_an_example_for_every_verb():
    code, out, _ = ctta("--help")
    assert code == 0
    for verb in ("demo", "run", "report", "track", "adapt", "train", "list", "corrupt", "check"):
        assert verb in out
        code, page, _ = ctta(verb, "--help")
        assert code == 0
        assert "Example" in page


def test_a_run_is_put_beside_the_paper(tmp_path, spec):
    folder = tmp_path / "run"
    code, out, err = ctta("run", spec, "--out", folder)
    assert code == 0, err
    assert "Comparison with the paper" not in out
    code, out, err = ctta("run", spec, "--out", folder, "--set", "paper=table1")
    assert code == 0, err
    assert "All of it was done before" in err, "the table decides no number"
    assert "Comparison with the paper: Table 1, CIFAR10-C" in out
    assert "only the order is compared" in " ".join(out.split())
    assert "## Comparison with the paper" in (folder / "table.md").read_text()
    assert (folder / "comparison.csv").read_text().startswith("table,label,domain,paper")
    code, out, err = ctta("report", folder, "--json")
    assert json.loads(out)["comparison"] == json.loads((folder / "comparison.json").read_text())


def test_a_file_in_the_place_of_the_run_folder_is_refused(tmp_path, spec):
    (tmp_path / "run").write_text("mine")
    code, _, err = ctta("run", spec, "--out", tmp_path / "run")
    assert code == 2
    assert "a file of that name is in the way. Give another place to write to." in " ".join(err.split())
    assert "Traceback" not in err
    assert (tmp_path / "run").read_text() == "mine"


def test_run_ends_with_table_and_page(tmp_path, spec):
    code, out, err = ctta("run", spec, "--out", tmp_path / "run")
    assert code == 0, err
    assert "Source" in out
    assert "DSS" in out
    assert "report.html" in out
    assert "vs Source" in out
    assert {"report.html", "table.csv", "table.md", "metrics.csv", "metrics.json", "run.json", "dss-s0.jsonl"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert "ctta run" in json.loads((tmp_path / "run" / "run.json").read_text())["command"]
    code, out, err = ctta("run", spec, "--out", tmp_path / "run")
    assert "done before" in err


def test_json_is_json_and_nothing_else(tmp_path, spec):
    code, out, err = ctta("run", spec, "--out", tmp_path / "run", "--json", "--set", "data.images=20")
    assert code == 0
    assert err == ""
    table = json.loads(out)
    assert Path(table["report"]).is_file()
    code, again, _ = ctta("report", tmp_path / "run", "--json")
    assert json.loads(again) == table


def test_mistakes_are_messages_not_tracebacks(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps({"data": {"sverity": 3}, "methods": ["dsss"]}))
    code, _, err = ctta("run", path)
    assert code == 2
    assert "Did you mean 'severity'?" in err
    assert "Did you mean 'dss'?" in err
    assert "Traceback" not in err
    code, _, err = ctta("report", tmp_path)
    assert code == 2
    assert "not a run folder" in err
    code, _, err = ctta("list", "nothing")
    assert code == 2


def test_check_says_what_would_run(spec):
    code, out, err = ctta("check", spec)
    assert code == 0, err
    assert "2 domains, 4 batches" in out
    assert "dss-s0" in out
    assert f"ctta run {spec}" in out.replace("\n", "")


def test_lists():
    methods = {row["method"]: row for row in json.loads(ctta("list", "methods", "--json")[1])}
    assert set(METHODS) == set(methods)
    assert (methods["eata"]["source"], methods["tent"]["source"]) == ("statistics", "none")
    assert (methods["cotta"]["forward"], methods["sar"]["backward"]) == ("3 to 34", "2")
    assert (methods["conjugate_pl"]["prediction"], methods["dss"]["boundaries"]) == ("after", "used")
    assert list(NAMES) == [row["corruption"] for row in json.loads(ctta("list", "corruptions", "--json")[1])]
    assert set(MODELS) == {row["model"] for row in json.loads(ctta("list", "models", "--json")[1])}
    assert set(KINDS) == {row["protocol"] for row in json.loads(ctta("list", "protocols", "--json")[1])}
    fields = {row["field"] for row in json.loads(ctta("list", "protocols", "recurring", "--json")[1])}
    assert fields == {"kind", "rounds", "order"}
    fields = {row["field"] for row in json.loads(ctta("list", "datasets", "imagenet_c", "--json")[1])}
    assert {"preprocessing", "list", "severity"} <= fields
    assert "jpeg" not in fields
    fields = {row["field"] for row in json.loads(ctta("list", "methods", "dss", "--json")[1])}
    assert {"lambda_", "delta", "threshold", "temperature", "alpha", "parts", "views", "gate"} <= fields


def test_ctrl_c_keeps_what_was_done(tmp_path, spec):
    process = start("run", spec, "--out", tmp_path / "run", "--set", "data={domains: all, batch: 20}", "--quiet")
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in (tmp_path / "run").glob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert any(path.read_text().count("\n") for path in (tmp_path / "run").glob("*.jsonl"))


def test_corrupt_writes_the_public_formats(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "clean.npz", images=images, labels=np.arange(6))
    code, _, err = ctta("corrupt", tmp_path / "clean.npz", tmp_path / "out", "--corruption", "fog,contrast")
    assert code == 0, err
    assert np.load(tmp_path / "out" / "fog.npy").shape == (30, 32, 32, 3)
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == list(range(6)) * 5
    (tmp_path / "tree" / "n01").mkdir(parents=True)
    Image.fromarray(np.zeros((224, 224, 3), np.uint8)).save(tmp_path / "tree" / "n01" / "a.png")
    code, _, err = ctta("corrupt", tmp_path / "tree", tmp_path / "c", "--corruption", "fog", "--severity", "5")
    assert code == 0, err
    assert (tmp_path / "c" / "fog" / "5" / "n01" / "a.JPEG").is_file()
    code, _, err = ctta("corrupt", tmp_path / "none", tmp_path / "d", "--corruption", "fogg")
    assert code == 2
    assert "Did you mean 'fog'?" in err


def test_a_corrupted_set_runs_as_a_stream(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "clean.npz", images=images, labels=np.arange(6))
    assert ctta("corrupt", tmp_path / "clean.npz", tmp_path / "c", "--corruption", "fog", "-q")[0] == 0
    spec = SPEC | {"data": {"dataset": "cifar10_c", "path": str(tmp_path / "c"), "domains": ["fog"], "batch": 3}}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    code, out, err = ctta("run", tmp_path / "s.yaml", "--out", tmp_path / "run", "--json")
    assert code == 0, err
    assert json.loads(out)


def test_adapt_answers_without_labels(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("a10", "a2"):
        Image.fromarray(np.full((40, 30, 3), 90, np.uint8)).save(tmp_path / "photos" / f"{name}.png")
    (tmp_path / "photos" / "bad.jpg").write_text("a web page")
    (tmp_path / "model.py").write_text("from tiny import network as make\n")
    words = ("adapt", f"{tmp_path}/model.py:make", tmp_path / "photos", "-o", tmp_path / "out.csv", "--size", "32")
    code, out, err = ctta(*words, "--method", "tent", "--report", tmp_path / "run", "--set", "lr=0.01")
    assert code == 0, err
    assert "2 samples in" in out
    assert "1 could not be read" in out
    assert "preset 'cifar10' by input (3, 32, 32)" in err
    assert "This stream has no labels" in (tmp_path / "run" / "report.html").read_text()
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["file", "a2.png", "a10.png", "bad.jpg"]
    code, _, err = ctta(*words)
    assert code == 2
    assert "--force" in err
    code, _, err = ctta(*words, "--force", "--method", "dsss", "--mean", ".5", "--batch", "0")
    assert code == 2
    assert all(part in err for part in ("Did you mean 'dss'?", "mean and std belong together", "batch must be"))


def test_a_killed_training_goes_on(tmp_path):
    spec = {
        "data": {"dataset": "embedded", "images": 400},
        "model": {"factory": "tiny:network"},
        "train": {"epochs": 60, "batch": 20},
    }
    (tmp_path / "train.yaml").write_text(json.dumps(spec))
    words = ("train", tmp_path / "train.yaml", "-q", "--checkpoint-seconds", "0", "-o")
    process = start(*words, tmp_path / "a.safetensors")
    deadline = time.monotonic() + 60
    while not (tmp_path / "a.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert (tmp_path / "a.checkpoint").exists()
    assert not (tmp_path / "a.safetensors").exists()
    for name in ("a", "b"):
        code, out, err = ctta(*words, tmp_path / f"{name}.safetensors")
        assert code == 0, err
        assert "train error" in out
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("a", "b"))
    assert all(torch.equal(one[key], two[key]) for key in one)
    code, _, err = ctta(*words, tmp_path / "a.safetensors", "--set", "train.epoch=3")
    assert code == 2
    assert "Did you mean 'epochs'?" in err


@pytest.mark.slow
def test_the_demo(tmp_path):
    """The whole of it at a tenth of its size, with the embedded model: adaptation must help."""
    code, out, err = ctta(
        "demo", "--out", tmp_path / "demo", "--json", "--set", "data.images=100", "--set", "method.views=1"
    )
    assert code == 0, err
    rows = {row["label"]: row["mean"]["mean"] for row in json.loads(out)["rows"]}
    assert set(rows) == {"Source", "BN Adapt", "TENT", "CoTTA", "DSS"}
    assert max(error for label, error in rows.items() if label != "Source") < 0.75 * rows["Source"]


def test_the_cloud_demo(tmp_path):
    """Two of its domains at a quarter of their size: the same report, clouds drawn, and adaptation helps."""
    small = ("--set", "data.domains=[background, lidar]", "--set", "data.images=36", "--set", "method.views=2")
    code, out, err = ctta("demo", "--clouds", "--out", tmp_path / "demo", "--json", *small)
    assert code == 0, err
    table = json.loads(out)
    assert table["samples"] == "clouds"
    rows = {row["label"]: row["mean"]["mean"] for row in table["rows"]}
    assert set(rows) == {"Source", "BN Adapt", "TENT", "CoTTA", "DSS"}
    assert max(error for label, error in rows.items() if label != "Source") < rows["Source"]
    page = Path(table["report"]).read_text()
    assert page.count("data:image/png;base64") >= 6
    assert "of clouds" in page
    with np.load(tmp_path / "demo" / "dss-s0.samples.npz") as samples:
        assert samples["images"].shape[1:] == (96, 96, 3)
