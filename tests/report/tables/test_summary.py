"""The second table: worked by hand on a tiny folder, and recomputed from the lines of a real run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from ctta.report.metrics import Difference
from ctta.report.results import Results
from ctta.report.tables import errors, render, summary
from ctta.report.tables.summary import MethodMetrics, MetricsTable
from run_folders import TinyRun, execute

SPEC = {
    "data": {"domains": ["gaussian_noise", "fog", "contrast"], "images": 90, "batch": 20},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": [
        "source",
        {"method": "tent", "lr": 0.05},
        {"method": "dss", "views": 2, "augmentation_threshold": 1.0, "lr": 0.01},
    ],
    "seeds": [0, 1, 2],
    "measure": {"clean_samples": 25},
    "baseline": "TENT",
}


def summed(folder: RunFolder) -> MetricsTable:
    results = Results.load(folder)
    return summary.build(results, errors.build(results))


def row_of(made: MetricsTable, label: str) -> MethodMetrics:
    return next(row for row in made.rows if row.label == label)


def shown(made: MetricsTable, width: int = 160) -> str:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(render.to_rich(summary.layouts(made), width))
    return console.export_text()


def lines(made: MetricsTable) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render.to_csv(summary.data(made)))))


# By hand: two domains of two batches of 10


def test_differences_and_ends(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    for seed, (tent, dss) in enumerate([([1, 1, 5, 6], [4, 4, 2, 2]), ([2, 2, 5, 5], [3, 3, 2, 4])]):
        run.add("source", [5, 5, 5, 5], seed=seed)
        run.add("tent", tent, seed=seed).add("dss", dss, seed=seed)
    made = summed(run.folder)
    source, tent_row, dss_row = made.rows
    assert (made.baseline, source.difference) == ("SOURCE", None)
    # TENT: 13 and 14 wrong of 40, Source 20: -17.5 and -15 points, 12.706 * (2.5 / sqrt(2)) / sqrt(2) to each side. The
    # same in the two places of a domain: 7 and 6 of 40 below Source.
    assert tent_row.difference is not None
    assert tent_row.difference.mean == pytest.approx(-16.25)
    ends = (-16.25 - 12.7062 * 1.25, -16.25 + 12.7062 * 1.25)
    assert tent_row.difference.over_seeds == pytest.approx(ends, abs=1e-3)
    assert tent_row.difference.over_batches == pytest.approx(ends, abs=1e-3)
    # Fog is last: 11 and 10 wrong of 20, Source 10.
    assert (tent_row.collapsed, tent_row.compared, source.compared) == (1, 2, 0)
    assert (dss_row.collapsed, dss_row.compared) == (0, 2)
    assert tent_row.ending is not None
    assert tent_row.ending.mean == pytest.approx(52.5)
    # So far, after each domain: 10 and 20 %, then 32.5 and 35 %.
    assert [value and value.mean for value in tent_row.running] == [15.0, pytest.approx(33.75)]
    # The differences are -20 and -20, which say nothing, so places do: -9 and -7 of 40.
    ends = (-20 - 12.7062 * 2.5, -20 + 12.7062 * 2.5)
    assert dss_row.difference == Difference(-20.0, None, pytest.approx(ends, abs=1e-3))
    assert dss_row.recovery is None, "two batches are too few"
    text = shown(made)
    assert "vs SOURCE" in text
    assert "−16.2" in text
    assert "1 of 2" in text
    assert "over seeds" in text
    assert "−32.1 to −0.4" in text
    assert "the last domain (fog)" in " ".join(text.split())


def test_a_named_baseline_and_the_last_round(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, [("fog", 5), ("snow", 5)] * 2, {"kind": "recurring", "rounds": 2})
    run.add("source", [5] * 8).add("tent", [1, 1, 1, 1, 9, 9, 2, 2])
    head = json.loads((tmp_path / "run.json").read_text())
    head["experiment"]["baseline"] = "TENT"
    (tmp_path / "run.json").write_text(json.dumps(head))
    made = summed(run.folder)
    assert made.baseline == "TENT"
    assert [row.difference and row.difference.mean for row in made.rows] == [pytest.approx(17.5), None]
    assert made.ending == "the last round"
    assert row_of(made, "TENT").collapsed == 1, (
        "22 wrong of 40, Source 20; over the last domain alone it would be 4 of 20"
    )


def test_without_source_there_is_no_baseline(tmp_path: Path) -> None:
    made = summed(TinyRun(tmp_path).add("tent", [1, 1, 5, 6]).add("dss", [1, 1, 1, 1]).folder)
    assert made.baseline is None
    assert all(row.difference is None and row.compared == 0 for row in made.rows)
    assert "vs" not in shown(made)
    assert made.notes() == ["Best in bold."]


def test_method_runs_count_once_they_are_complete(tmp_path: Path) -> None:
    run = TinyRun(tmp_path).add("source", [5, 5, 5, 5]).add("source", [5, 5, 5, 5], seed=1)
    run.add("tent", [1, 1, 1, 1]).add("tent", [9, 9, 9], seed=1, done=False).add("dss", [1], done=False)
    made = summed(run.folder)
    tent, dss = made.rows[1:]
    assert tent.seeds == (0,)
    assert (tent.difference, tent.collapsed, tent.compared) == (
        Difference(-40.0, None, (pytest.approx(-40.0), pytest.approx(-40.0))),
        0,
        1,
    )
    assert (dss.seeds, dss.difference, dss.running, dss.ending) == ((), None, (), None)
    status = {line["label"]: line["status"] for line in lines(made)}
    assert status == {"SOURCE": "complete", "TENT": "running, 1 of 2 seeds", "DSS": "running, 0 of 2 domains"}
    json.dumps(render.plain_data(made))


def test_without_labels_only_costs_are_known(tmp_path: Path) -> None:
    made = summed(TinyRun(tmp_path).add("source", [-1] * 4).add("tent", [-1] * 4).folder)
    assert all(row.error is None and row.difference is None and row.recovery is None for row in made.rows)
    assert [line["p95_seconds"] for line in lines(made)] == ["0.5", "0.5"]


def test_invalid_numbers_are_marked(tmp_path: Path) -> None:
    made = summed(TinyRun(tmp_path).add("source", [5] * 4).add("tent", [1] * 4, problem="odd weights").folder)
    assert "TENT (not valid)" in shown(made)
    assert [(line["status"], line["problems"]) for line in lines(made)] == [
        ("complete", ""),
        ("invalid", "odd weights"),
    ]


def test_a_narrow_terminal_shows_less(tmp_path: Path) -> None:
    made = summed(TinyRun(tmp_path).add("source", [5] * 4).add("tent", [1] * 4).folder)
    assert "Not shown here" not in shown(made, 120)
    assert "p95 s" in shown(made, 120)
    narrow = shown(made, 40)
    table, _, said = narrow.partition("Not shown here: ")
    assert "p95 s" not in table
    assert "p95 s, MB. See metrics.csv" in " ".join(said.split())
    assert "TENT" in narrow
    assert max(map(len, narrow.splitlines())) <= 40


# Recomputed from the lines of a real run


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("real"))
    for _ in execute(experiments.make(SPEC), folder):
        pass
    return folder


def raw(folder: RunFolder, label: str, seed: int) -> list[dict[str, Any]]:
    text = (folder.path / f"{label.lower()}-s{seed}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def total_error(cell: Sequence[dict[str, Any]]) -> float:
    return float(100 * np.sum([line["wrong"] for line in cell]) / np.sum([line["n"] for line in cell]))


def test_differences_of_a_real_run(real: RunFolder) -> None:
    made = summed(real)
    assert made.baseline == "TENT"
    dss = [total_error(raw(real, "DSS", seed)) for seed in SPEC["seeds"]]  # type: ignore[attr-defined]
    tent = [total_error(raw(real, "TENT", seed)) for seed in SPEC["seeds"]]  # type: ignore[attr-defined]
    found = row_of(made, "DSS")
    assert found.error is not None
    assert found.error.mean == pytest.approx(np.mean(dss))
    assert found.error.sd == pytest.approx(np.std(dss, ddof=1))
    assert found.difference is not None
    assert found.difference.over_seeds == pytest.approx(tuple(stats.ttest_rel(dss, tent).confidence_interval(0.95)))
    assert found.difference.over_batches == pytest.approx(over_places(real, "DSS", "TENT", (0, 1, 2)))
    # Neither Source nor TENT draws anything: their seeds are one, and places in a segment make the interval.
    source = row_of(made, "Source").difference
    assert source is not None
    assert source.over_seeds is None
    assert source.over_batches == pytest.approx(over_places(real, "Source", "TENT", (0,)))


def over_places(folder: RunFolder, label: str, baseline: str, seeds: Sequence[int]) -> tuple[float, float]:
    """The interval over places in a segment, from the lines."""
    more, n = np.zeros(5), np.zeros(5)
    for seed in seeds:
        for left, right in zip(raw(folder, label, seed), raw(folder, baseline, seed), strict=True):
            place = left["step"] - 5 * left["position"]
            more[place] += left["wrong"] - right["wrong"]
            n[place] += left["n"]
    assert (n / len(seeds)).tolist() == [60, 60, 60, 60, 30]
    centre = more.sum() / n.sum()
    error = np.sqrt(5 * np.var(more - centre * n, ddof=1)) / n.sum()
    low, high = stats.t.interval(0.95, 4, 100 * centre, 100 * error)
    return low, high


def test_the_other_columns_of_a_real_run(real: RunFolder) -> None:
    made = summed(real)
    for label in ("Source", "TENT", "DSS"):
        cells = [raw(real, label, seed) for seed in (0, 1, 2)]
        found = row_of(made, label)
        ece, clean, forgot = [], [], []
        for cell in cells:
            n, confidence, right = np.array([line["bins"] for line in cell]).sum(0).T
            full = n > 0
            gaps = np.abs(confidence[full] / n[full] - right[full] / n[full])
            ece.append(100 * np.average(gaps, weights=n[full]))
            asked, wrong, unadapted = cell[-1]["clean"]
            clean.append(100 * wrong / asked)
            forgot.append(100 * wrong / asked - 100 * unadapted / asked)
        assert found.calibration is not None
        assert found.calibration.mean == pytest.approx(np.mean(ece))
        assert len(found.clean) == 3
        assert found.clean[-1] is not None
        assert found.clean[-1].mean == pytest.approx(np.mean(clean))
        assert found.forgetting is not None
        assert found.forgetting.mean == pytest.approx(np.mean(forgot))
        seconds = [line["seconds"] for cell in cells for line in cell]
        assert found.cost.p50 == pytest.approx(np.median(seconds))
        assert found.cost.p95 == pytest.approx(np.quantile(seconds, 0.95))
        if label != "Source":
            worse = [
                sum(line["wrong"] for line in cell[10:]) > sum(line["wrong"] for line in raw(real, "Source", seed)[10:])
                for seed, cell in enumerate(cells)
            ]
            assert (found.collapsed, found.compared) == (sum(worse), 3)
    dss = [raw(real, "DSS", seed) for seed in (0, 1, 2)]
    chosen, missed = (
        np.array([[line[key] for line in cell] for cell in dss]) for key in ("selected", "selected_wrong")
    )
    found = row_of(made, "DSS")
    assert found.selected_accuracy is not None
    assert found.selected_accuracy.mean == pytest.approx(np.mean(100 - 100 * missed.sum(1) / chosen.sum(1)))
    assert row_of(made, "TENT").selected_accuracy is None


def test_the_csv_of_a_real_run(real: RunFolder) -> None:
    made = summed(real)
    found = {line["label"]: line for line in lines(made)}
    assert [float(found[label]["error"]) for label in found] == [
        pytest.approx(np.mean([total_error(raw(real, label, seed)) for seed in (0, 1, 2)]), rel=1e-5) for label in found
    ]
    compared = row_of(made, "DSS").difference
    assert compared is not None
    assert compared.over_batches is not None
    assert float(found["DSS"]["over_batches_low"]) == pytest.approx(compared.over_batches[0], rel=1e-5)
    assert found["Source"]["over_seeds_high"] == ""
    assert found["TENT"]["difference"] == ""
    assert {(line["baseline"], line["boundaries"]) for line in found.values()} == {("TENT", "known")}


def test_another_baseline_needs_no_new_run(real: RunFolder) -> None:
    before = {path: path.stat().st_mtime_ns for path in real.path.glob("*.jsonl")}
    assert list(execute(experiments.make(SPEC | {"baseline": "Source"}), real)) == []
    assert summed(real).baseline == "Source"
    assert before == {path: path.stat().st_mtime_ns for path in real.path.glob("*.jsonl")}
