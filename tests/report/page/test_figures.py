"""Figures: what they say, and where domains lie on a chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctta.report.page import charts, figures, tracks
from ctta.report.page.figures import Scene
from ctta.report.results import Results
from ctta.report.tables import errors
from fake_run import write_fake_run
from run_folders import TinyRun


def scene(results: Results) -> Scene:
    table = errors.build(results)
    styles = charts.styles([(row.label, row.method) for row in table.rows])
    return Scene(table, tuple(tracks.build(results)), styles)


def test_domains_to_come_are_as_wide_as_the_widest_so_far(tmp_path: Path) -> None:
    domains = [("fog", 5), ("snow", 5), ("frost", 5), ("contrast", 5)]
    run = TinyRun(tmp_path, domains).add("tent", [1, 1, 1], done=False)  # two batches of fog, one of snow
    assert figures._bands(scene(Results.load(run.folder))) == [
        ("fog", 0, 2),
        ("snow", 2, 4),
        ("frost", 4, 6),
        ("contr", 6, 8),
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


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    empty = scene(Results.load(TinyRun(tmp_path).add("tent", [], done=False).folder))
    assert not any(figures.draw(empty).values())
    assert figures.confidence(empty) == []


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
