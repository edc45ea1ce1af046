"""Following a run: what is new is written once, and a tracker that fails does not stop the run."""

from __future__ import annotations

import json
import sys
from collections import defaultdict

import pytest
from typer.testing import CliRunner

from ctta.base.errors import ConfigError
from ctta.cli.app import app
from ctta.records.run_folder import RunFolder
from ctta.report.trackers import tracking as trackers
from ctta.report.trackers.backend import TrackedRun, Tracker
from ctta.report.trackers.tracking import Tracking, parse
from fake_run import write_fake_run
from tracked import SMALL, must_equal, needed, tensorboard_values, track


def test_names_and_places():
    assert parse("") == {}
    assert parse("tensorboard, mlflow=http://host:5000") == {"tensorboard": "", "mlflow": "http://host:5000"}
    with pytest.raises(ConfigError, match=r"'tensorbord'. Did you mean 'tensorboard'[^$]*'x'"):
        parse("tensorbord,x")


@pytest.mark.parametrize("name", trackers.TRACKERS)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, name):
    for module in [*sys.modules]:
        if module.startswith("torch.utils.tensorboard"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'ctta\[{name}\]'"):
        Tracking(RunFolder(tmp_path), name, print)


class Failing(Tracker):
    """Takes no method run at all."""

    def __init__(self, folder, where):
        self.opened = 0

    def open(self, run, cell):
        self.opened += 1
        raise OSError("the disk is full")

    def keep(self, run, files):
        raise AssertionError("it was left out before")

    def look(self):
        return ""


def test_a_tracker_that_fails_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "TRACKERS", {"failing": Failing})
    folder, words = write_fake_run(tmp_path, **SMALL), []
    tracking = Tracking(folder, "failing", words.append)
    tracker = tracking.trackers["failing"]
    tracking.update()
    tracking.finish()
    assert tracker.opened == 1
    assert len(words) == 1
    assert "the disk is full" in words[0]
    assert "--to failing" in words[0]
    assert tracking.look() == []


def test_a_store_that_cannot_be_opened_is_known_before_the_run(tmp_path):
    needed("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="tensorboard cannot be used at"):
        Tracking(RunFolder(tmp_path), f"tensorboard={tmp_path / 'file'}", print)


def test_following_is_cheap_and_sees_what_is_new(tmp_path, monkeypatch):
    """A second update comes after the pause, takes no more than its share, and reads only what was appended."""
    seen, now = [], [100.0]

    class Slow(Failing):
        def open(self, run, cell):
            return Seen()

    class Seen(TrackedRun):
        def __init__(self):
            self.last = defaultdict(lambda: -1)

        def write(self, rows):
            now[0] += 1
            seen.extend(step for step, _ in rows)

        def close(self, *, complete):
            seen.append(complete)

    monkeypatch.setattr(trackers, "TRACKERS", {"slow": Slow})
    monkeypatch.setattr(trackers.time, "monotonic", lambda: now[0])
    small = SMALL | {"methods": ("dss",)}
    tracking = Tracking(write_fake_run(tmp_path, **small, stop_after={"dss": 2}), "slow", print)
    tracking.follow()
    assert seen == [0, 1]
    write_fake_run(tmp_path, **small, stop_after={"dss": 4})
    now[0] += 19
    tracking.follow()
    assert seen == [0, 1]
    now[0] += 1.5
    tracking.follow()
    assert seen == [0, 1, 2, 3]
    tracking.close()
    assert seen == [0, 1, 2, 3, False]


def test_trackers_leave_the_records_alone(tmp_path):
    needed("tensorboard")
    folder = write_fake_run(tmp_path, **SMALL)
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    track(folder, "tensorboard")
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in folder.path.iterdir()} - {path.name for path in before} == {"tensorboard"}


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.yaml"
    data = {"domains": ["fog", "contrast"], "images": 20, "batch": 10}
    path.write_text(json.dumps({"data": data, "model": {"factory": "tiny:network"}, "methods": ["source", "tent"]}))
    return path


def test_a_run_is_tracked_as_it_goes(tmp_path, spec, monkeypatch):
    needed("tensorboard")
    monkeypatch.setattr(trackers, "EVERY", 0.0)
    monkeypatch.setattr(trackers, "SHARE", 1e9)
    folder = RunFolder(tmp_path / "run")
    made = CliRunner().invoke(app, ["run", str(spec), "--out", str(folder.path), "--track", "tensorboard"])
    assert made.exit_code == 0, made.output
    assert "tensorboard --logdir" in made.output
    for cell in ("source-s0", "tent-s0"):
        (events,) = (folder.path / "tensorboard").glob(f"*/{cell}")
        must_equal(tensorboard_values(events), folder, cell)
    again = CliRunner().invoke(app, ["track", str(folder.path), "--to", f"tensorboard={tmp_path / 'logs'}"])
    assert again.exit_code == 0, again.output
    (events,) = (tmp_path / "logs").glob("*/tent-s0")
    must_equal(tensorboard_values(events), folder, "tent-s0")


def test_a_missing_package_is_known_before_the_run(tmp_path, spec, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    made = CliRunner().invoke(app, ["run", str(spec), "--out", str(tmp_path / "run"), "--track", "wandb"])
    assert made.exit_code == 2
    assert "needs wandb" in made.output
    assert not (tmp_path / "run").exists()


def test_what_fails_after_a_run_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "TRACKERS", {"failing": Failing})
    write_fake_run(tmp_path, **SMALL)
    made = CliRunner().invoke(app, ["track", str(tmp_path), "--to", "failing"])
    assert made.exit_code == 2
    assert "the disk is full" in made.output
