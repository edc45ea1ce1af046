"""A folder without labels: what is read, in which order, and what is said about it."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from ctta import ConfigError, InputError, StateError
from ctta.methods import METHODS
from ctta.records.run_folder import RunFolder
from ctta.report import render
from ctta.running.adapt_folder import Plan, natural, open_samples, plan_adaptation, read_image

FACTORY = '''
import torch
from dataclasses import dataclass
from torch import nn

@dataclass
class Size:
    classes: "int"

class Bright(nn.Module):
    """Class 1 for bright samples, class 0 for dark ones, with confidence e/(1 + e)."""
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.head = nn.Linear(1, Size(2).classes)
    def forward(self, x):
        mean = x.flatten(1).mean(1, keepdim=True)
        bright = (mean > 0.5).float()
        return torch.cat([1 - bright, bright], 1) + 0 * self.head(self.norm(mean))

def make():
    return Bright()
'''
SURE = float(np.e / (1 + np.e))


@pytest.fixture
def model(tmp_path):
    (tmp_path / "own.py").write_text(FACTORY)
    return f"{tmp_path}/own.py:make"


@pytest.fixture
def photos(tmp_path):
    """Dark, bright, dark, bright ... by their numbers, 1 to 10, in two folders."""
    for number in range(1, 11):
        path = tmp_path / "photos" / ("early" if number < 4 else "late") / f"p{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 255 * (number % 2 == 0), np.uint8)).save(path)
    return tmp_path / "photos"


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def drain(plan: Plan, *arguments, **options):
    *_, last = plan.run(*arguments, **options)
    return last


def test_answers_by_hand(tmp_path, model, photos):
    (tmp_path / "names.txt").write_text("dark\nbright\n")
    plan = plan_adaptation(model, photos, method="source", batch=4, classes=tmp_path / "names.txt")
    summary = drain(plan, tmp_path / "out" / "p.csv")
    found = rows(tmp_path / "out" / "p.csv")
    assert [row["file"] for row in found] == [f"{'early' if n < 4 else 'late'}/p{n}.png" for n in range(1, 11)]
    assert [row["prediction"] for row in found] == ["0", "1"] * 5
    assert [row["name"] for row in found] == [row["source_name"] for row in found] == ["dark", "bright"] * 5
    assert {row["confidence"] for row in found} == {f"{SURE:.6f}"}
    assert {row["selected"] for row in found} == {row["error"] for row in found} == {""}
    assert [row["batch"] for row in found] == list("0000111222"), "batches of nearly equal size"
    assert (summary.answered, summary.skipped, summary.changed) == (10, 0, 0)
    assert summary.along(2) == pytest.approx([SURE, SURE])


def test_a_method_that_selects_says_what(tmp_path, model, photos):
    summary = drain(plan_adaptation(model, photos, changes={"views": 1, "threshold": 0.9}), tmp_path / "p.csv")
    assert {row["selected"] for row in rows(tmp_path / "p.csv")} == {"0"}, f"{SURE} is below the threshold"
    assert summary.answered == 10


def test_a_method_can_look_for_changes_of_domain_itself(tmp_path, model, photos):
    for detect, word in ((True, "detected"), (False, "unknown")):
        plan = plan_adaptation(model, photos, method="bn_adapt", batch=5, detect=detect)
        drain(plan, tmp_path / "p.csv", tmp_path / "run", force=True)
        folder = RunFolder(tmp_path / "run")
        assert folder.run().stream["boundaries"] == word
        assert all(("boundary" in record.info) is detect for record in folder.records("bn-adapt-s0"))


def test_what_cannot_be_read_gets_a_line(tmp_path, model, photos):
    whole = (photos / "early" / "p2.png").read_bytes()
    (photos / "early" / "p2.png").write_bytes(whole[: len(whole) // 2])
    (photos / "early" / "p3.png").write_text("<html>")
    (photos / ".hidden.png").write_text("not seen")
    summary = drain(plan_adaptation(model, photos, method="source", batch=2), tmp_path / "p.csv")
    found = rows(tmp_path / "p.csv")
    assert [bool(row["error"]) for row in found] == [False, True, True] + [False] * 7
    assert [row["prediction"] for row in found[:4]] == ["0", "", "", "1"]
    assert (summary.answered, summary.skipped) == (8, 2)
    assert "p2.png" in " ".join(summary.describe())
    for path in photos.rglob("*.png"):
        path.write_text("")
    with pytest.raises(InputError, match="None of the 10"):
        plan_adaptation(model, photos)
    with pytest.raises(InputError, match="None of the 10"):
        drain(plan_adaptation(model, photos, size=8), tmp_path / "q.csv")
    assert len(rows(tmp_path / "q.csv")) == 10


def test_the_table_grows_batch_by_batch(tmp_path, model, photos):
    turns = plan_adaptation(model, photos, method="source", batch=5).run(tmp_path / "p.csv")
    next(turns)
    assert len(rows(tmp_path / "p.csv")) == 5
    turns.close()
    with pytest.raises(StateError, match=r"p\.csv would be overwritten.*--force"):
        drain(plan_adaptation(model, photos), tmp_path / "p.csv")


def test_the_page_has_no_errors_on_it(tmp_path, model, photos):
    plan = plan_adaptation(model, photos, method="source", batch=5)
    for force in (False, True):
        summary = drain(plan, tmp_path / "p.csv", tmp_path / "run", force=force, command="ctta adapt")
    folder = RunFolder(tmp_path / "run")
    found = list(folder.records("source-s0"))
    assert [(record.n, record.wrong, record.selected_wrong) for record in found] == [(5, -1, None)] * 2
    assert folder.done("source-s0").n == 10
    assert folder.samples("source-s0").label.tolist() == [-1] * 5
    page = render(folder)
    assert page == summary.page.read_text()
    assert "0.0 % of the answers differ" in page
    assert "✓" not in page


@pytest.mark.parametrize("form", ["folder", "npy", "npz"])
def test_clouds(tmp_path, model, form):
    clouds = np.stack([np.full((16, 3), value, np.float16) for value in (0, 1, 1, 0)])
    clouds[2, 5, 1] = np.nan
    path = tmp_path / "clouds" if form == "folder" else tmp_path / f"clouds.{form}"
    if form == "folder":
        path.mkdir()
        for number, cloud in enumerate(clouds):
            np.save(path / f"{number}.npy", cloud)
    elif form == "npy":
        np.save(path, clouds)
    else:
        np.savez(path, labels=np.arange(4), points=clouds)
    plan = plan_adaptation(model, path, method="source")
    assert plan.cell.preset == "clouds"
    drain(plan, tmp_path / "p.csv", tmp_path / "run")
    found = rows(tmp_path / "p.csv")
    assert [row["prediction"] for row in found] == ["0", "1", "", "0"]
    assert "NaN" in found[2]["error"]
    assert found[3]["file"] == ("3.npy" if form == "folder" else f"clouds.{form}[3]")


def test_images_in_one_array(tmp_path, model):
    np.save(tmp_path / "images.npy", np.stack([np.full((8, 8, 3), value, np.uint8) for value in (0, 255)]))
    drain(plan_adaptation(model, tmp_path / "images.npy", method="source"), tmp_path / "p.csv")
    assert [row["prediction"] for row in rows(tmp_path / "p.csv")] == ["0", "1"]
    with pytest.raises(InputError, match=r"of \(8, 8\) pixels; the model takes 32"):
        open_samples(tmp_path / "images.npy", 32)


def test_images_are_resized_by_the_shorter_side_and_cut_in_the_middle(tmp_path):
    stripes = np.zeros((10, 30, 3), np.uint8)
    stripes[:, 10:20] = 255  # the middle third is white
    Image.fromarray(stripes).save(tmp_path / "wide.png")
    image = read_image(tmp_path / "wide.png", 20)
    assert image.shape == (20, 20, 3)
    assert image[:, 2:-2].min() == 255
    assert np.array_equal(read_image(tmp_path / "wide.png"), stripes)


def test_images_of_every_kind(tmp_path):
    deep = Image.fromarray(np.array([[0, 257 * 100], [65535, 257]], np.uint16))
    deep.save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png")[..., 0].tolist() == [[0, 100], [255, 1]]
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(np.zeros((4, 9, 3), np.uint8)).save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg").shape == (9, 4, 3)
    (tmp_path / "deep.png").unlink()
    assert open_samples(tmp_path).shape == (3, 9, 4)
    palette = Image.fromarray(np.full((2, 2), 7, np.uint8)).convert("P")
    palette.save(tmp_path / "p.png", transparency=bytes([0, 255]))
    assert read_image(tmp_path / "p.png").shape == (2, 2, 3)


def test_natural_order():
    assert sorted(["10.png", "9.png", "b/1.png", "a/02.png", "a/1.png"], key=natural) == [
        *("9.png", "10.png"),
        *("a/1.png", "a/02.png", "b/1.png"),
    ]


def test_sizes_that_differ_are_an_error_that_says_what_to_give(tmp_path, model, photos):
    Image.fromarray(np.zeros((9, 8, 3), np.uint8)).save(photos / "z.png")
    with pytest.raises(InputError, match=r"differ in size: early/p1\.png has \(8, 8\), z\.png has \(9, 8\).*--size"):
        plan_adaptation(model, photos)
    assert plan_adaptation(model, photos, size=8).samples.shape == (3, 8, 8)
    assert plan_adaptation("embedded", photos).samples.shape == (3, 32, 32), "the model's own"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda root: root / "none", "is no folder"),
        (lambda root: root, "holds no images"),
        (lambda root: (root / "a.npy").write_text("x") and root / "a.npy", "cannot be read as an array"),
        (lambda root: np.save(root / "b.npy", np.zeros((4, 4))) or root / "b.npy", r"float64 \(4, 4\)"),
    ],
    ids=["nothing", "empty", "damaged", "wrong form"],
)
def test_folders_that_cannot_be_used(tmp_path, make, said):
    with pytest.raises(InputError, match=said):
        open_samples(make(tmp_path))


def test_all_mistakes_at_once(photos):
    with pytest.raises(ConfigError) as error:
        plan_adaptation("nothing", photos, changes={"vews": 3}, preset="cifar11", mean=[0.5], batch=0)
    for said in ("no model 'nothing'", "Did you mean 'views'", "Did you mean 'cifar10'", "belong together", "batch"):
        assert said in str(error.value)


def test_a_method_that_needs_source_data_is_refused(photos, monkeypatch):
    kind = METHODS["tent"]
    traits = type(kind.traits)(**{**vars(kind.traits), "source": "samples"})
    monkeypatch.setattr(kind, "traits", traits)
    with pytest.raises(ConfigError, match=r"'tent' needs labelled source data.*dss"):
        plan_adaptation("embedded", photos, method="tent")


def test_names_must_fit_the_model(tmp_path, model, photos):
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="3 names of classes; the model has 2"):
        plan_adaptation(model, photos, classes=tmp_path / "names.txt")
    with pytest.raises(InputError, match="a text file"):
        plan_adaptation(model, photos, classes=tmp_path / "none.txt")


def test_names_and_normalisation_come_with_the_weights(tmp_path, model, photos):
    """Normalised by (x - 2) / 1 every image is dark."""
    state = {"norm.weight": torch.ones(1), "norm.bias": torch.zeros(1)}
    state |= {"norm.running_mean": torch.zeros(1), "norm.running_var": torch.ones(1)}
    state |= {"head.weight": torch.ones(2, 1), "head.bias": torch.zeros(2)}
    state |= {"normalize.mean": torch.tensor([2.0]), "normalize.std": torch.tensor([1.0])}
    save_file(state, tmp_path / "w.safetensors", {"ctta": "0", "classes": json.dumps(["dark", "bright"])})
    plan = plan_adaptation(model, photos, method="source", weights=str(tmp_path / "w.safetensors"))
    drain(plan, tmp_path / "p.csv")
    assert {row["name"] for row in rows(tmp_path / "p.csv")} == {"dark"}


def test_the_embedded_model_knows_its_classes(tmp_path, photos):
    plan = plan_adaptation("embedded", photos, method="bn_adapt", seed=3)
    drain(plan, tmp_path / "p.csv")
    assert re.fullmatch(r"[A-Z].*", rows(tmp_path / "p.csv")[0]["name"])
    assert isinstance(plan.adapter.source_model, nn.Module)
    assert plan.cell.seed == plan.adapter.seed == 3
