"""A folder without labels: what is predicted, in which order, and what is reported about it."""

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
from ctta.core import statistics as norms
from ctta.core.adapter import Adapter
from ctta.core.guard import Guard
from ctta.core.guard_state import GuardState
from ctta.core.health import Standing
from ctta.core.saving import SavedAdapter
from ctta.methods import METHODS
from ctta.records.run_folder import RunFolder
from ctta.report.results import Results
from ctta.report.verdict import of
from ctta.running.adapt_folder import AdaptationPlan, plan_adaptation

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
    """Dark, bright, dark, bright ... by their numbers, 1 to 10, in two folders; none is blank."""
    for number in range(1, 11):
        path = tmp_path / "photos" / ("early" if number < 4 else "late") / f"p{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((8, 8, 3), 255 * (number % 2 == 0), np.uint8)
        pixels[0, 0] = 128
        Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def drain(plan: AdaptationPlan, *arguments, **options):
    *_, last = plan.run(*arguments, **options)
    return last


def test_predictions_by_hand(tmp_path, model, photos):
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
    assert (summary.predicted, summary.skipped, summary.changed) == (10, 0, 0)
    assert summary.along(summary.confidence, 2) == f"{SURE:.2f} ({SURE:.2f} → {SURE:.2f})"
    assert summary.verdict() == ["Guard: no sign of harm."]


@pytest.mark.parametrize(
    ("verdict", "words", "state"), [("healthy", "no sign", "healthy"), ("watched", "some evidence", "watch")]
)
def test_the_terminal_and_the_page_have_one_verdict(tmp_path, model, photos, monkeypatch, verdict, words, state):
    monkeypatch.setattr(Guard, "verdict", verdict)
    summary = drain(plan_adaptation(model, photos, method="bn_adapt", batch=5), tmp_path / "p.csv", tmp_path / "run")
    assert summary.verdict()[-1].startswith(f"Guard: {words} of harm")
    assert ("the latest predictions come from the unadapted weights." in summary.verdict()[-1]) is (state == "watch")
    found = of(Results.load(tmp_path / "run"))
    assert found is not None
    assert found.state == state


ALONE, WEIGHTS = "the unadapted model alone", "the unadapted weights under the stream's statistics"


@pytest.mark.parametrize(
    ("state", "heard", "doubt", "said"),
    [
        (
            {},
            0.0,
            0.0,
            f"10 of 10 predictions come from {WEIGHTS}: a new adapter is on trial for its first 256 samples.",
        ),
        (
            {},
            0.5,
            2.0,
            f"10 of 10 predictions come from {WEIGHTS}: a new adapter is on trial for its first 256 samples.",
        ),
        ({"trial": 7, "alarm": 0}, 0.0, 0.0, f"5 of 10 predictions come from {WEIGHTS}: after an alarm the adapter is"),
        ({"trial": 0}, 0.0, 2.0, f"10 of 10 predictions come from {WEIGHTS}: there is no sign of a shift, so learning"),
        (
            {"trial": 0, "evidence": 10.0},
            0.0,
            0.0,
            f"10 of 10 predictions come from {WEIGHTS}: what was learned narrows",
        ),
        ({"frozen": True}, 0.0, 0.0, f"10 of 10 predictions come from {WEIGHTS}: the adapter learns no more."),
        (
            {},
            1.0,
            0.0,
            f"10 of 10 predictions come from {ALONE}: the stream holds few of the classes, or its statistics",
        ),
        ({"trial": 0}, 0.0, 0.0, ""),
    ],
    ids=["trial", "trial and no shift", "alarm", "no shift", "evidence", "frozen", "unadapted", "adapted"],
)
def test_who_answered_is_told_and_why(tmp_path, model, photos, monkeypatch, state, heard, doubt, said):
    monkeypatch.setattr(Standing, "heard", lambda self: torch.tensor(heard))
    monkeypatch.setattr(norms, "doubt", lambda network: torch.tensor(doubt))
    plan = plan_adaptation(model, photos, method="tent", batch=5)
    plan.adapter.state = GuardState(**state)
    lines = drain(plan, tmp_path / "p.csv").verdict()
    assert len(lines) == 1 + bool(said)
    assert lines[0].startswith(f"Guard: {said}" if said else "Guard: no sign of harm.")


def test_the_batch_of_an_alarm_counts_as_harm(tmp_path, model, photos, monkeypatch):
    monkeypatch.setattr(Standing, "heard", lambda self: torch.tensor(0.0))
    plan = plan_adaptation(model, photos, method="tent", batch=5)
    plan.adapter.state = GuardState(trial=0, evidence=100.0)
    lines = drain(plan, tmp_path / "p.csv").verdict()
    assert "went back to the source" in lines[0]
    assert lines[1].startswith(f"Guard: 5 of 10 predictions come from {WEIGHTS}: what was learned narrows")
    assert lines[2:] == [
        f"Guard: 5 of 10 predictions come from {WEIGHTS}: after an alarm the adapter is on trial for 512 samples."
    ]


@pytest.mark.parametrize("blank", [10, 4])
def test_blank_pictures_are_told(tmp_path, model, blank):
    for number in range(10):
        pixels = np.full((8, 8, 3), 20 * number, np.uint8)
        if number >= blank:
            pixels[:] = np.arange(0, 240, 30, np.uint8)[:, None]
        Image.fromarray(pixels).save(tmp_path / f"p{number}.png")
    summary = drain(plan_adaptation(model, tmp_path, method="tent", batch=5), tmp_path / "p.csv")
    assert summary.verdict()[0].startswith(f"Guard: {blank} of 10 predictions come from {ALONE}: the samples show")
    assert summary.changed == 0


@pytest.mark.parametrize(("guard", "passes"), [(True, 0), (False, 2)])
def test_the_unadapted_model_is_not_asked_again_for_what_a_comparison_knows(
    tmp_path, model, photos, monkeypatch, guard, passes
):
    plan = plan_adaptation(model, photos, method="tent", batch=5, guard=guard)
    asked, source = [], Adapter.source
    monkeypatch.setattr(Adapter, "source", lambda self, x: asked.append(len(x)) or source(self, x))
    drain(plan, tmp_path / "p.csv")
    assert asked == [5] * passes
    assert [row["source_prediction"] for row in rows(tmp_path / "p.csv")] == ["0", "1"] * 5


def test_a_method_that_selects_reports_what(tmp_path, model, photos):
    summary = drain(
        plan_adaptation(model, photos, method="dss", changes={"views": 1, "threshold": 0.9}), tmp_path / "p.csv"
    )
    assert {row["selected"] for row in rows(tmp_path / "p.csv")} == {"0"}, f"{SURE} is below the threshold"
    assert summary.predicted == 10


def test_a_method_can_detect_changes_of_domain_itself(tmp_path, model, photos):
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
    assert (summary.predicted, summary.skipped) == (8, 2)
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


def test_what_ended_before_its_first_prediction_is_not_in_the_way(tmp_path, model, photos, monkeypatch):
    out, run = tmp_path / "p.csv", tmp_path / "run"
    with monkeypatch.context() as broken:
        broken.setattr(METHODS["tent"], "adapt", lambda self, x: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drain(plan_adaptation(model, photos, method="tent"), out, run, command="ctta adapt")
    for _ in range(2):
        drain(plan_adaptation(model, photos, method="tent"), out, run, command="ctta adapt")
        assert len(rows(out)) == 10
        with pytest.raises(StateError, match=r"p\.csv and .*run\.json would be overwritten"):
            drain(plan_adaptation(model, photos, method="tent"), out, run, command="ctta adapt")
        out.unlink()
        run.joinpath("tent-s0.jsonl").write_bytes(b"")


def test_the_run_folder_knows_no_errors(tmp_path, model, photos):
    plan = plan_adaptation(model, photos, method="source", batch=5)
    for force in (False, True):
        drain(plan, tmp_path / "p.csv", tmp_path / "run", force=force, command="ctta adapt")
    folder = RunFolder(tmp_path / "run")
    found = list(folder.records("source-s0"))
    assert [(record.n, record.wrong, record.selected_wrong) for record in found] == [(5, -1, None)] * 2
    assert (folder.done("source-s0").n, folder.done("source-s0").wrong) == (10, -1)
    assert folder.samples("source-s0") is None, "no prediction has changed"
    assert [(record.info["changed"], record.info["source_confidence"]) for record in found] == [
        (0.0, pytest.approx(SURE))
    ] * 2
    run = folder.run()
    assert (run.command, run.stream["images"]) == ("ctta adapt", 10)
    assert run.notes == ("0.0 % of the predictions differ from the unadapted model's.",)
    assert run.events == ()
    assert not list(folder.path.rglob("*.safetensors"))


def test_batches_of_which_nothing_can_be_read_are_left_out(tmp_path, model, photos):
    for number in (4, 5, 6, 9, 10):  # the second batch of three, and the end of the last
        (photos / "late" / f"p{number}.png").write_text("")
    steps = list(plan_adaptation(model, photos, method="source", batch=3).run(tmp_path / "p.csv", tmp_path / "run"))
    found = rows(tmp_path / "p.csv")
    assert [row["batch"] for row in found] == list("0001112233")
    assert [number for number, row in enumerate(found, start=1) if row["error"]] == [4, 5, 6, 9, 10]
    assert [summary.done for summary in steps] == [3, 8, 10]
    assert [record.step for record in RunFolder(tmp_path / "run").records("source-s0")] == [0, 2]
    assert RunFolder(tmp_path / "run").samples("source-s0") is None
    assert RunFolder(tmp_path / "run").run().notes[-1] == "5 of 10 samples could not be read."


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
        plan_adaptation(model, tmp_path / "images.npy", size=32)


def test_grey_pictures_for_a_model_of_one_channel(tmp_path, photos):
    (tmp_path / "grey.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))\n"
    )
    model = f"{tmp_path}/grey.py:make"
    plan = plan_adaptation(model, photos, channels=1, method="tent", clean=photos)
    assert plan.samples.shape == (1, 8, 8)
    assert drain(plan, tmp_path / "p.csv", tmp_path / "run").predicted == 10
    with pytest.raises(ConfigError, match="--channels must be 3, or 1"):
        plan_adaptation(model, photos, channels=2)
    np.save(tmp_path / "clouds.npy", np.zeros((2, 4, 3)))
    with pytest.raises(ConfigError, match=r"no colours\. Remove --channels"):
        plan_adaptation(model, tmp_path / "clouds.npy", channels=1)


def test_sizes_that_differ_are_an_error_that_says_what_to_give(tmp_path, model, photos):
    Image.fromarray(np.zeros((9, 8, 3), np.uint8)).save(photos / "z.png")
    with pytest.raises(InputError, match=r"differ in size: early/p1\.png has \(8, 8\), z\.png has \(9, 8\).*--size"):
        plan_adaptation(model, photos)
    assert plan_adaptation(model, photos, size=8).samples.shape == (3, 8, 8)
    assert plan_adaptation("embedded", photos).samples.shape == (3, 32, 32), "the model's own"


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


def carried(model, photos, state, **arguments):
    """The plan of a run whose state is in a file, after the run."""
    arguments = {"method": "tent", "batch": 5} | arguments
    plan = plan_adaptation(model, photos, state=state, **arguments)
    list(plan.run(state.with_name("out.csv"), force=True))
    return plan


def test_a_state_that_does_not_fit_is_refused_and_stays_as_it_was(tmp_path, model, photos):
    state = tmp_path / "state.safetensors"
    carried(model, photos, state)
    assert carried(model, photos, state).adapter.batches == 4
    before = state.read_bytes()
    refused = [
        ({"guard": False}, r"with a guard\. Remove --no-guard"),
        ({"seed": 1}, "Give --seed 0"),
        ({"method": "bn_adapt"}, r"state\.safetensors cannot be used.*saved by method 'tent'"),
        ({"changes": {"lr": 0.5}}, r"Make the adapter with lr=0\.001"),
        ({"detect": True}, "boundaries='known'"),
    ]
    for arguments, words in refused:
        with pytest.raises(StateError, match=words):
            carried(model, photos, state, **arguments)
        assert state.read_bytes() == before
    with pytest.raises(StateError, match="another model"):
        carried("tiny:network", photos, state)
    state.write_bytes(before[:-1])
    with pytest.raises(StateError, match=r"state\.safetensors is damaged"):
        carried(model, photos, state)
    assert state.read_bytes() == before[:-1]


def test_a_run_that_learns_nothing_writes_no_state(tmp_path, model, photos):
    state = tmp_path / "state.safetensors"
    (tmp_path / "out.csv").write_text("file\n")
    with pytest.raises(StateError, match="overwritten"):
        list(plan_adaptation(model, photos, state=state, method="tent").run(tmp_path / "out.csv"))
    assert not state.exists()


def test_what_was_learned_before_a_failure_is_kept(tmp_path, photos, monkeypatch):
    """The state is that after the last complete batch."""
    state = tmp_path / "state.safetensors"
    plan = plan_adaptation("tiny:network", photos, state=state, method="tent", batch=5)
    monkeypatch.setattr(plan.adapter.adapter, "adapt", failing(plan.adapter.adapter.adapt, 2))
    with pytest.raises(KeyboardInterrupt):
        list(plan.run(tmp_path / "out.csv"))
    assert SavedAdapter.read(state).about["batches"] == 1
    plan = plan_adaptation("tiny:network", photos, state=tmp_path / "other.safetensors", method="tent", batch=5)
    run = plan.run(tmp_path / "other.csv")
    next(run)
    run.close()
    assert state.read_bytes() == (tmp_path / "other.safetensors").read_bytes()


def failing(adapt, call):
    """The method until its n-th batch, which is interrupted."""
    calls = []

    def called(x):
        calls.append(x)
        if len(calls) == call:
            raise KeyboardInterrupt
        return adapt(x)

    return called
