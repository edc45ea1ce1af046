"""Values along the stream, averaged over seeds."""

from __future__ import annotations

from pathlib import Path

from ctta.records.run_folder import Record
from ctta.report.page import tracks
from ctta.report.page.tracks import Track, thin
from ctta.report.results import Results
from run_folders import TinyRun


def test_seeds_are_averaged_step_by_step(tmp_path: Path) -> None:
    run = TinyRun(tmp_path).add("tent", [1, 2, 3, 4]).add("tent", [3, 4], seed=1, done=False).add("dss", [], done=False)
    (track,) = tracks.build(Results.load(run.folder))  # DSS has no records
    assert (track.label, list(track.batches), track.positions) == ("TENT", [0, 1, 2, 3], [0, 0, 1, 1])
    assert track.running_error(1) == (20.0, 30.0, 30.0, 40.0)
    assert track.running_error(2) == (20.0, 25.0, 30.0, 35.0)
    assert [(record.step, record.seed) for record in track.records] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0)]


def record(step: int, **options: object) -> Record:
    return Record("x", 0, step, "fog", 5, 10, 2, 0.1, {}, **options)  # type: ignore[arg-type]


def test_confidence_is_the_method_s_own_or_that_of_its_predictions() -> None:
    bins = ((4, 2.0, 1), (6, 5.0, 5))
    assert tracks.confidence(record(0, bins=bins)) == 0.7
    assert tracks.confidence(Record("x", 0, 0, "fog", 5, 10, 2, 0.1, {"confidence": 0.3}, bins=bins)) == 0.3
    assert tracks.confidence(record(0)) is None
    assert (tracks.selected(record(0, selected=4)), tracks.selected(record(0))) == (40.0, None)


def test_an_error_on_clean_samples_holds_until_the_next() -> None:
    track = Track("X", ((record(0), record(1, clean=(50, 5, 4)), record(2), record(3, clean=(50, 10, 4))),))
    assert track.clean_error() == (None, 10.0, 10.0, 20.0)


def test_long_lines_are_thinned() -> None:
    assert thin((1.0, 3.0, None, None, 5.0), 2) == (2.0, None, 5.0)
