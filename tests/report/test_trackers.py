"""Trackers: what is written to them is what the records say, once."""

from __future__ import annotations

import json
import struct
import sys

import pytest
from typer.testing import CliRunner

from ctta.base.errors import ConfigError, StateError
from ctta.cli.app import app
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder
from ctta.report import trackers
from ctta.report.trackers import Tracking, batch_rows, final_row, parameters, parse
from fake_run import write_fake_run

SMALL = {"methods": ("source", "dss"), "domains": ("fog", "snow"), "batches": 3, "size": 20}


def record(step, wrong, *, domain="fog", selected=None, **info):
    return Record("dss", 0, step, domain, 5, 10, wrong, 0.5, info, selected=selected)


def needed(*modules):
    for module in modules:
        extra = "mlflow" if module in ("sqlalchemy", "alembic") else module
        pytest.importorskip(module, reason=f"{module} is an extra: pip install 'ctta[{extra}]'", exc_type=ImportError)


def track(folder, to):
    """As the command does, but what fails is an error."""
    failures = []
    Tracking(folder, to, failures.append).finish()
    assert not failures


def expected(folder, cell):
    """All (metric, step, value) of a cell, from its files and by other means than the trackers'."""
    lines = [json.loads(line) for line in folder.records_path(cell).read_text().splitlines()]
    for at, line in enumerate(lines):
        sofar = lines[: at + 1]
        values = {name: value for name, value in line["info"].items() if name != "selected"}
        values["error"] = line["wrong"] / line["n"] * 100
        values["running_error"] = sum(x["wrong"] for x in sofar) / sum(x["n"] for x in sofar) * 100
        values["seconds"] = line["seconds"]
        if line["selected"] is not None:
            values["selected"] = line["selected"] / line["n"] * 100
        yield from ((f"batch/{name}", line["step"], value) for name, value in values.items())
    done = json.loads((folder.path / f"{cell}.done.json").read_text())
    for domain in {line["domain"] for line in lines}:
        of = [line for line in lines if line["domain"] == domain]
        yield f"domain/{domain}", len(lines), sum(x["wrong"] for x in of) / sum(x["n"] for x in of) * 100
    yield "final/error", len(lines), done["wrong"] / done["n"] * 100
    yield "final/seconds", len(lines), done["seconds"]
    yield "final/peak_memory", len(lines), done["peak_memory"]
    yield "final/valid", len(lines), 1.0


def must_equal(found, folder, cell):
    """Each value once, at its step."""
    wanted = sorted(expected(folder, cell))
    assert [(name, step) for name, step, _ in sorted(found)] == [(name, step) for name, step, _ in wanted]
    assert [value for *_, value in sorted(found)] == pytest.approx([value for *_, value in wanted], rel=1e-6)


def interrupted(path):
    """A run with one cell cut short, and the same run when it is complete."""
    return write_fake_run(path, **SMALL, stop_after={"dss": 4}), lambda: write_fake_run(path, **SMALL)


def test_rows_by_hand():
    records = [
        record(0, 4, selected=5, confidence=0.75, selected_share=0.5),
        record(1, 1, selected=8, loss=float("nan")),
        record(2, 2, domain="my snow/5"),
    ]
    rows = list(batch_rows(records))
    assert [step for step, _ in rows] == [0, 1, 2]
    assert rows[0][1] == {
        "batch/confidence": 0.75,
        "batch/selected_share": 0.5,
        "batch/error": 40.0,
        "batch/running_error": 40.0,
        "batch/selected": 50.0,
        "batch/seconds": 0.5,
    }
    assert rows[1][1] == {
        "batch/error": 10.0,
        "batch/running_error": 25.0,
        "batch/selected": 80.0,
        "batch/seconds": 0.5,
    }
    assert rows[2][1]["batch/running_error"] == pytest.approx(70 / 3)
    step, row = final_row(records, Done(3, 30, 7, 1.5, 12.0, valid=False, problems=("off",)))
    assert step == 3
    assert row == {
        "domain/fog": 25.0,
        "domain/my_snow_5": 20.0,
        "final/error": pytest.approx(70 / 3),
        "final/seconds": 1.5,
        "final/peak_memory": 12.0,
        "final/valid": 0.0,
    }


def test_without_labels_there_is_no_error():
    records = [record(0, -1, confidence=0.5)]
    assert list(batch_rows(records)) == [(0, {"batch/confidence": 0.5, "batch/seconds": 0.5})]
    _, row = final_row(records, Done(1, 10, -1, 0.5, 1.0))
    assert set(row) == {"final/seconds", "final/peak_memory", "final/valid"}


def test_parameters_are_flat_and_plain():
    run = Run("mine", "abc", {}, {"dataset": "x", "batch": 20, "protocol": {"kind": "recurring"}}, (), {})
    cell = Cell(
        "dss-s1", "dss", "DSS", 1, "cifar10", {"lr": 0.1, "layers": ["a"], "augmentation_threshold": None, "lean": True}
    )
    assert parameters(run, cell) == {
        "experiment": "mine",
        "identity": "abc",
        "dataset": "x",
        "batch": 20,
        "protocol.kind": "recurring",
        "label": "DSS",
        "method": "dss",
        "seed": 1,
        "preset": "cifar10",
        "config.lr": 0.1,
        "config.layers": '["a"]',
        "config.augmentation_threshold": "null",
        "config.lean": True,
    }


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


class Failing(trackers.Tracker):
    """Takes one cell, then no more."""

    def __init__(self, folder, where):
        self.opened = 0

    def open(self, run, cell):
        self.opened += 1
        raise OSError("the disk is full")

    def keep(self, run, files):
        raise AssertionError("it was left out before")

    def look(self):
        return ""


def test_a_tracker_that_fails_is_told_of_once(tmp_path, monkeypatch):
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
    """A second look comes after the pause, and costs no more than its share."""
    seen, now = [], [100.0]

    class Slow(Failing):
        def open(self, run, cell):
            return Seen()

    class Seen(trackers.Tracked):
        def __init__(self):
            self.last = trackers.defaultdict(lambda: -1)

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


def tensorboard_values(path):
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    found = EventAccumulator(str(path), size_guidance={SCALARS: 0}).Reload()
    return [(tag, point.step, point.value) for tag in found.Tags()["scalars"] for point in found.Scalars(tag)]


def test_tensorboard_has_the_records(tmp_path):
    needed("tensorboard")
    folder, complete = interrupted(tmp_path / "run")
    track(folder, "tensorboard")
    (events,) = (folder.path / "tensorboard").glob("*/dss-s0")
    assert max(step for _, step, _ in tensorboard_values(events)) == 3
    complete()
    track(folder, "tensorboard")
    for cell in ("dss-s0", "source-s0"):
        must_equal(tensorboard_values(events.with_name(cell)), folder, cell)
    files = len(list(folder.path.rglob("events.*")))
    track(folder, "tensorboard")
    assert len(list(folder.path.rglob("events.*"))) == files == 3


def test_a_crash_inside_a_step_leaves_no_gap(tmp_path):
    """What is there of a step is kept, what is not is added."""
    needed("tensorboard")
    folder = write_fake_run(tmp_path / "run", **SMALL)
    tracking = Tracking(folder, "tensorboard", print)
    run = folder.run()
    cut = tracking.trackers["tensorboard"].open(run, run.cells[1])
    rows = list(batch_rows(folder.records("dss-s0")))
    cut.write([rows[0], (1, dict(list(rows[1][1].items())[:3]))])
    cut.close(complete=False)
    track(folder, "tensorboard")
    (events,) = (folder.path / "tensorboard").glob("*/dss-s0")
    must_equal(tensorboard_values(events), folder, "dss-s0")


def test_tensorboard_knows_the_settings(tmp_path):
    needed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    folder = write_fake_run(tmp_path / "run", **SMALL)
    track(folder, f"tensorboard={tmp_path / 'logs'}")
    (events,) = (tmp_path / "logs").glob("*/dss-s0")
    about = EventAccumulator(str(events)).Reload().SummaryMetadata("_hparams_/session_start_info").plugin_data
    told = HParamsPluginData.FromString(about.content).session_start_info.hparams
    assert told["label"].string_value == "DSS"
    assert told["config.lr"].number_value == 1e-3


@pytest.fixture(scope="module")
def mlflow_store(tmp_path_factory):
    """One for all tests: MLflow takes seconds to make its tables."""
    needed("mlflow", "sqlalchemy", "alembic")
    return tmp_path_factory.mktemp("store")


def test_mlflow_has_the_records(tmp_path, mlflow_store):
    folder, complete = interrupted(tmp_path / "run")
    to = f"mlflow={mlflow_store}"
    track(folder, to)
    client = Tracking(folder, to, print).trackers["mlflow"].client
    home = client.get_experiment_by_name("demo").experiment_id

    def runs():
        return {run.info.run_name: run for run in client.search_runs([home])}

    assert (runs()["dss-s0"].info.status, runs()["source-s0"].info.status) == ("KILLED", "FINISHED")
    complete()
    for name in trackers.FILES:
        (folder.path / name).write_text(name)
    track(folder, to)
    track(folder, to)
    assert set(runs()) == {"demo", "dss-s0", "source-s0"}
    for cell in ("dss-s0", "source-s0"):
        run = runs()[cell]
        history = [m for name in run.data.metrics for m in client.get_metric_history(run.info.run_id, name)]
        must_equal([(m.key, m.step, m.value) for m in history], folder, cell)
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == runs()["demo"].info.run_id
    told = runs()["dss-s0"].data.params
    assert (told["label"], told["seed"], told["config.lr"]) == ("DSS", "0", "0.001")
    kept = {item.path for item in client.list_artifacts(runs()["demo"].info.run_id)}
    assert kept == set(trackers.FILES)
    assert {path.name for path in mlflow_store.iterdir()} == {"mlflow.db", "mlartifacts"}


def wandb_history(path):
    """The rows of an offline run: a log of checksummed blocks with a protobuf message a record."""
    from wandb.proto.wandb_internal_pb2 import Record as Message

    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            message, whole = Message.FromString(whole), b""
            if message.WhichOneof("record_type") == "history":
                yield {item.key or item.nested_key[0]: json.loads(item.value_json) for item in message.history.item} | {
                    "_step": message.history.step.num
                }


def test_wandb_has_the_records_offline(tmp_path, monkeypatch):
    needed("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder, complete = interrupted(tmp_path / "run")
    track(folder, "wandb")
    complete()
    (folder.path / "report.html").write_text("page")
    track(folder, "wandb")
    track(folder, "wandb")
    for cell in ("dss-s0", "source-s0"):
        (path,) = (folder.path / "wandb").glob(f"offline-run-*-{cell}/*.wandb")
        rows = list(wandb_history(path))
        assert [row["_step"] for row in rows] == [0, 1, 2, 3, 4, 5, 6]
        found = [(key, row["_step"], value) for row in rows for key, value in row.items() if "/" in key]
        must_equal(found, folder, cell)
    (page,) = (folder.path / "wandb").glob("offline-run-*-report/files/report.html")
    assert page.read_text() == "page"


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
    assert isinstance(made.exception, ConfigError)
    assert not (tmp_path / "run").exists()


def test_what_fails_after_a_run_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "TRACKERS", {"failing": Failing})
    write_fake_run(tmp_path, **SMALL)
    made = CliRunner().invoke(app, ["track", str(tmp_path), "--to", "failing"])
    assert isinstance(made.exception, StateError)
    assert "the disk is full" in str(made.exception)
