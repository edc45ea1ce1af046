"""Figures: what they say, and where domains lie on a chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctta.records.run_folder import Record
from ctta.report.page import figures
from ctta.report.page.figures import Scene, Track
from ctta.report.results import Results
from ctta.report.tables import errors
from fake_run import write_fake_run
from run_folders import TinyRun


def scene(results: Results) -> Scene:
    return Scene.of(results, errors.build(results))


def test_domains_to_come_are_as_wide_as_the_widest_so_far(tmp_path: Path) -> None:
    domains = [("fog", 5), ("snow", 5), ("frost", 5), ("contrast", 5)]
    run = TinyRun(tmp_path, domains).add("tent", [1, 1, 1], done=False)  # two batches of fog, one of snow
    assert figures._bands(scene(Results.load(run.folder))) == [
        ("fog", 0, 2),
        ("snow", 2, 4),
        ("frost", 4, 6),
        ("contrast", 6, 8),
    ]


@pytest.mark.parametrize(
    ("boundaries", "words"),
    [("told", "boundaries are known"), ("detected", "each detected domain boundary"), ("hidden", "are unknown")],
)
def test_what_the_threshold_does_at_boundaries(tmp_path: Path, boundaries: str, words: str) -> None:
    folder = write_fake_run(tmp_path, methods=("source", "dss"), domains=("fog", "snow"), batches=3, size=20)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace('"boundaries": "known"', f'"boundaries": "{boundaries}"'))
    (figure,) = figures.thresholds(scene(Results.load(folder)))
    assert words in figure.reading
    assert [series["label"] for series in figure.data["series"]] == ["confidence", "threshold"]
    assert figure.title == "DSS: confidence and threshold"


def test_the_difference_to_source_is_that_of_the_running_errors(tmp_path: Path) -> None:
    run = TinyRun(tmp_path).add("source", [5, 5, 5, 5]).add("tent", [1, 2, 6]).add("tent", [1, 2, 8], seed=1)
    (figure,) = figures.differences(scene(Results.load(run.folder)))
    assert figure.data["series"] == [{"label": "TENT", "values": [-40.0, -30.0, 20.0]}]
    assert not figures.differences(scene(Results.load(TinyRun(tmp_path / "other").add("tent", [1] * 4).folder)))


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    empty = scene(Results.load(TinyRun(tmp_path).add("tent", [], done=False).folder))
    assert not any(figures.draw(empty).values())


def test_calibration_is_the_mean_of_the_seeds(tmp_path: Path) -> None:
    options = {"methods": ("source",), "domains": ("fog",), "batches": 3, "size": 50}
    each = []
    for seed in (0, 1):
        folder = write_fake_run(tmp_path / str(seed), seeds=(seed,), **options)  # type: ignore[arg-type]
        each.append(figures.calibrations(scene(Results.load(folder)))[0].data["ece"])
    both = write_fake_run(tmp_path / "both", seeds=(0, 1), **options)  # type: ignore[arg-type]
    (figure,) = figures.calibrations(scene(Results.load(both)))
    assert figure.data["ece"] == pytest.approx(sum(each) / 2)
    assert figure.reading == f"ECE {sum(each) / 2:.1f} %"


# Values along the stream


def test_seeds_are_averaged_step_by_step(tmp_path: Path) -> None:
    run = TinyRun(tmp_path).add("tent", [1, 2, 3, 4]).add("tent", [3, 4], seed=1, done=False).add("dss", [], done=False)
    (track,) = scene(Results.load(run.folder)).tracks  # DSS has no records
    assert (track.label, list(track.batches), track.positions) == ("TENT", [0, 1, 2, 3], [0, 0, 1, 1])
    assert track.running_error(1) == (20.0, 30.0, 30.0, 40.0)
    assert track.running_error(2) == (20.0, 25.0, 30.0, 35.0)
    assert [(record.step, record.seed) for record in track.records] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0)]


def record(step: int, **options: object) -> Record:
    return Record("x", 0, step, "fog", 5, 10, 2, 0.1, {}, **options)  # type: ignore[arg-type]


def test_confidence_is_the_method_s_own_or_that_of_its_predictions() -> None:
    bins = ((4, 2.0, 1), (6, 5.0, 5))
    assert figures.confidence_in(record(0, bins=bins)) == 0.7
    assert figures.confidence_in(Record("x", 0, 0, "fog", 5, 10, 2, 0.1, {"confidence": 0.3}, bins=bins)) == 0.3
    assert figures.confidence_in(record(0)) is None
    assert (figures.selected_in(record(0, selected=4)), figures.selected_in(record(0))) == (40.0, None)


def test_an_error_on_clean_samples_holds_until_the_next() -> None:
    track = Track("X", ((record(0), record(1, clean=(50, 5, 4)), record(2), record(3, clean=(50, 10, 4))),))
    assert track.clean_error() == (None, 10.0, 10.0, 20.0)


def test_long_lines_are_thinned() -> None:
    assert figures.thin((1.0, 3.0, None, None, 5.0), 2) == (2.0, None, 5.0)
