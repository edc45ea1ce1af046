"""TensorBoard has what the records hold, once."""

from __future__ import annotations

from ctta.report.trackers import Tracking
from ctta.report.trackers.backend import batch_rows
from fake_run import write_fake_run
from tracked import SMALL, interrupted, must_equal, needed, tensorboard_values, track


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
