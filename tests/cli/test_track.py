"""`ctta track`: a run folder in a tracker."""

from __future__ import annotations

from command_line import ctta
from run_folders import TinyRun


def test_it_says_how_to_see_what_was_logged(tmp_path):
    TinyRun(tmp_path / "run").add("source", [5, 5, 4, 4])
    code, out, err = ctta("track", tmp_path / "run", "--to", f"tensorboard={tmp_path / 'logs'}")
    assert code == 0, err
    assert out == f"Tracked: tensorboard --logdir {tmp_path / 'logs'}\n"
    assert list((tmp_path / "logs").rglob("events.out.*"))


def test_an_unknown_tracker_is_an_error(tmp_path):
    TinyRun(tmp_path / "run").add("source", [5, 5, 4, 4])
    code, _, err = ctta("track", tmp_path / "run", "--to", "tensorbord")
    assert code == 2
    assert "Did you mean 'tensorboard'?" in err
