"""Numbers worked by hand on a tiny run: two domains of 20 images, batches of 10."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from ctta.report.metrics import Cost, Value
from ctta.report.tables import errors, render
from ctta.report.tables.errors import ErrorTable
from run_folders import TinyRun


def markdown(table: ErrorTable) -> str:
    return render.to_markdown(errors.table(table))


def to_csv(table: ErrorTable) -> str:
    return render.to_csv(errors.data(table))


@pytest.fixture
def run(tmp_path: Path) -> TinyRun:
    return TinyRun(tmp_path)


def test_domain_errors_and_their_mean(run: TinyRun) -> None:
    (row,) = run.add("tent", [1, 3, 6, 6]).table().rows
    assert [value.mean for value in row.errors if value] == [20.0, 60.0]
    assert row.mean == Value(40.0, None, 1)
    assert (row.status, row.problems) == ("", ())


def test_cost(run: TinyRun) -> None:
    (row,) = run.add("tent", [1, 3, 6, 6]).table().rows
    assert row.cost == Cost(0.5, 20.0, 64.0, 6.0, 1.0, 4.0, 0.5, 0.5)


def test_seeds_become_mean_and_standard_deviation(run: TinyRun) -> None:
    (row,) = run.add("dss", [1, 1, 2, 2], seed=0).add("dss", [2, 2, 4, 4], seed=1).table().rows
    assert row.seeds == (0, 1)
    first, second = row.errors
    # 10 and 20 %: mean 15, sample standard deviation sqrt(50)
    assert first == Value(pytest.approx(15.0), pytest.approx(50**0.5), 2)
    assert second == Value(pytest.approx(30.0), pytest.approx(200**0.5), 2)
    # the seeds' own means are 15 and 30 %
    assert row.mean == Value(pytest.approx(22.5), pytest.approx(112.5**0.5), 2)


def test_the_best_of_each_column_and_ties(run: TinyRun) -> None:
    table = run.add("source", [5, 5, 2, 2]).add("tent", [3, 3, 2, 2]).add("dss", [4, 4, 1, 3]).table()
    assert table.best == (frozenset({"TENT"}), frozenset({"SOURCE", "TENT", "DSS"}), frozenset({"TENT"}))


def test_alone_nobody_is_best(run: TinyRun) -> None:
    assert run.add("tent", [1, 1, 1, 1]).table().best == (frozenset(),) * 3


def test_a_running_method_shows_complete_domains_only(run: TinyRun) -> None:
    table = run.add("source", [5, 5, 5, 5]).add("dss", [1, 1, 0], done=False).table()
    row = table.rows[1]
    assert row.status == "running, 1 of 2 domains"
    assert [value and value.mean for value in row.errors] == [10.0, None]
    assert row.mean is None
    assert row.cost.memory is None
    assert table.best == (frozenset({"DSS"}), frozenset(), frozenset())


def test_a_domain_is_complete_when_all_its_images_were_seen(run: TinyRun) -> None:
    (row,) = run.add("dss", [1, 1], done=False).table().rows
    assert row.status == "running, 1 of 2 domains"


def test_a_method_without_records_waits(run: TinyRun) -> None:
    table = run.add("dss", [], done=False).table()
    assert table.rows[0].status == "waiting"
    assert table.labelled
    assert "–" in markdown(table)


def test_some_seeds_still_running(run: TinyRun) -> None:
    (row,) = run.add("dss", [1, 1, 2, 2]).add("dss", [1, 1], seed=1, done=False).table().rows
    assert row.status == "running, 1 of 2 seeds"
    assert row.mean == Value(15.0, None, 1)


def test_an_invalid_method_is_marked_and_never_best(run: TinyRun) -> None:
    table = run.add("source", [5, 5, 5, 5]).add("bn", [4, 4, 4, 4]).add("tent", [0, 0, 0, 0], problem="NaN").table()
    assert table.rows[2].remark == "invalid: NaN"
    assert all(labels == {"BN"} for labels in table.best)
    assert "[1] invalid: NaN" in markdown(table)


def test_without_labels_there_are_no_errors(run: TinyRun) -> None:
    table = run.add("dss", [-1, -1, -1, -1]).table()
    assert not table.labelled
    assert table.rows[0].errors == (None, None)
    assert "gauss" not in markdown(table)
    assert "errors are not known" in table.caption()


def test_names_of_domains_that_come_again_or_in_several_severities(tmp_path: Path) -> None:
    again = TinyRun(tmp_path / "again", [("fog", 5), ("fog", 5)]).add("tent", [1] * 4).table()
    assert [column.title for column in again.columns] == ["fog", "fog #2"]
    graded = TinyRun(tmp_path / "graded", [("gaussian_noise", 1), ("gaussian_noise", 2)]).add("tent", [1] * 4).table()
    assert [column.short for column in graded.columns] == ["gauss 1", "gauss 2"]


def test_caption(run: TinyRun) -> None:
    caption = run.add("tent", [1] * 4).table().caption()
    assert "Domain boundaries known." in caption
    assert "20 images per domain." in caption
    assert "seeds" not in caption


def test_csv(run: TinyRun) -> None:
    table = run.add("tent", [1, 2, 3, 3]).add("dss", [1, 1, 2, 2]).add("dss", [2, 2, 4, 4], seed=1).table()
    first, second = csv.DictReader(io.StringIO(to_csv(table)))
    assert (first["label"], first["gaussian_noise"], first["fog"], first["mean"]) == ("TENT", "15.0", "30.0", "22.5")
    assert (first["mean sd"], first["status"], first["boundaries"]) == ("", "complete", "known")
    assert (second["seeds"], second["mean"], second["mean sd"]) == ("0 1", "22.5", "10.61")
    assert (second["seconds_per_batch"], second["images_per_second"], second["peak_memory_mb"]) == ("0.5", "20", "64")


def test_methods_that_use_source_data_are_marked(run: TinyRun) -> None:
    table = run.add("tent", [1] * 4, source="none").add("eata", [1] * 4, source="statistics").table()
    text = markdown(table)
    assert "| EATA† |" in text
    assert "| TENT |" in text
    assert "† Uses source data." in table.caption()
    assert [row["source_data"] for row in csv.DictReader(io.StringIO(to_csv(table)))] == ["none", "statistics"]


def test_without_such_methods_there_is_no_mark(run: TinyRun) -> None:
    assert "†" not in markdown(run.add("tent", [1] * 4, source="none").add("old", [1] * 4).table())


def test_needs_in_words() -> None:
    traits = {"learns": "all parameters", "forwards": [3, 34], "backwards": [1, 1], "answers": "after"}
    assert errors.needs({**traits, "source": "samples", "boundaries": True}) == {
        "learns": "all parameters",
        "forward": "3 to 34",
        "backward": "1",
        "prediction": "after",
        "source": "samples",
        "boundaries": "used",
    }


def test_markdown(run: TinyRun) -> None:
    text = markdown(run.add("source", [5, 5, 5, 5]).add("a|b", [1, 1, 2, 2]).table())
    assert text.splitlines()[0] == "|  | gauss | fog | mean | s/batch | images/s | MB | views |"
    assert "| A\\|B | **10.0** | **20.0** | **15.0** | 0.5 | 20 | 64 | 4 |" in text


def test_json_is_plain_data(run: TinyRun) -> None:
    data = json.loads(
        json.dumps(render.plain_data(run.add("source", [5] * 4).add("dss", [1] * 4).table(), unit="percent error"))
    )
    assert data["best"] == [["DSS"]] * 3
    assert data["rows"][1]["mean"] == {"mean": 10.0, "sd": None, "seeds": 1, "each": [10.0]}
    assert data["unit"] == "percent error"


PAPER = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 160, 300])
def test_the_terminal_table_fits_and_keeps_the_mean(tmp_path: Path, width: int) -> None:
    run = TinyRun(tmp_path, [(name, 5) for name in PAPER])
    for method in ("source", "bn_adapt", "tent", "cotta", "dss"):
        run.add(method, [1, 2] * 15).add(method, [2, 4] * 15, seed=1)
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(render.to_rich(errors.layouts(run.table()), width))
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "22.5 ± 10.6" in text
    assert "…" not in text
    assert ("gauss" in text) == (width >= 80)
    shown, _, said = " ".join(text.split()).partition("Not shown here: ")
    assert all((head in shown) != (head in said) for head in ("s/batch", "images/s", "MB", "views"))
    assert ("errors by domain" in said) == (width == 40)
    assert not said or said.endswith("See table.csv in the run's folder.")


def test_point_clouds_are_counted_as_samples_per_second(run: TinyRun) -> None:
    run.stream["samples"] = "clouds"
    heads = [column.head for column in errors.table(run.add("tent", [1] * 4).table()).columns]
    assert "samples/s" in heads
    assert "images/s" not in heads


def test_the_best_is_bold_in_the_terminal(run: TinyRun) -> None:
    table = run.add("source", [5] * 4).add("[red]", [1] * 4).table()
    console = Console(width=120, file=io.StringIO(), force_terminal=True)
    with console.capture() as captured:
        console.print(render.to_rich(errors.layouts(table), 120))
    assert "\x1b[1m 10.0" in captured.get() or "\x1b[1m10.0" in captured.get()
    assert "[RED]" in captured.get(), "a label is never read as markup"


def test_a_long_stream_has_one_column_per_domain_and_per_round(tmp_path: Path) -> None:
    """Eleven rounds of two domains; wrong predictions in both batches of noise grow by the round, fog has none."""
    protocol = {"kind": "recurring", "rounds": 11, "order": None}
    run = TinyRun(tmp_path, [("gaussian_noise", 5), ("fog", 5)] * 11, protocol)
    run.add("tent", [count for turn in range(11) for count in (turn, turn - turn // 10, 0, 0)])
    table = run.table()
    assert [column.title for column in table.columns] == ["gaussian_noise", "fog"]
    assert len(table.segments) == 22
    (row,) = table.rows
    # Noise: 2 (0 + 1 + ... + 10) - 1 = 109 of 220 wrong; over all, of 440.
    assert [value.mean for value in row.errors if value] == [pytest.approx(100 * 109 / 220), 0.0]
    assert row.mean == Value(pytest.approx(100 * 109 / 440), None, 1)
    assert [value.mean for value in row.rounds if value] == [*(100 * 2 * turn / 40 for turn in range(10)), 47.5]
    assert "Protocol: recurring (rounds 11)." in table.caption()
    assert "22 segments; a column counts all segments of a domain. 20 images per segment." in table.caption()
    head = markdown(table).splitlines()[0]
    assert head.startswith("|  | gauss | fog | mean | r1 | r2 |")
    (line,) = csv.DictReader(io.StringIO(to_csv(table)))
    assert (line["round 1"], line["round 11"], line["protocol"]) == ("0.0", "47.5", "recurring (rounds 11)")
    console = Console(width=80, file=io.StringIO(), record=True, color_system=None)
    console.print(render.to_rich(errors.layouts(table), 80))
    assert "r11" in console.export_text()


def test_rounds_fill_as_they_are_complete(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, [("gaussian_noise", 5), ("fog", 5)] * 11, {"kind": "recurring", "rounds": 11})
    (row,) = run.add("tent", [1] * 9, done=False).table().rows
    assert [value and value.mean for value in row.rounds] == [10.0, 10.0, *[None] * 9]
    assert row.errors == (None, None)
    assert row.mean is None
    assert row.status == "running, 4 of 22 domains"


def test_segments_of_unlike_size_count_by_their_samples(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, [("fog", 5), ("snow", 5)], {"kind": "segments", "longest": 2}, images=None)
    run.add("tent", [5, 5, 0])  # 10 of 20 in fog, none of 10 in snow
    (row,) = run.table().rows
    assert [value.mean for value in row.errors if value] == [50.0, 0.0]
    assert row.mean == Value(pytest.approx(100 / 3), None, 1)
    assert "per domain" not in run.table().caption()


def test_a_protocol_in_words(tmp_path: Path) -> None:
    severities = {"kind": "gradual", "severities": [1, 2, 1], "order": None}
    assert TinyRun(tmp_path / "a", protocol=severities).add("tent", [1] * 4).table().protocol == (
        "gradual (severities 1-2-1)"
    )
    assert TinyRun(tmp_path / "b", protocol={"kind": "sorted"}).add("tent", [1] * 4).table().protocol == "sorted"
    old = TinyRun(tmp_path / "c").add("tent", [1] * 4).table()
    assert old.protocol == ""
    assert "Protocol" not in old.caption()


def test_the_head_of_a_drift(tmp_path: Path) -> None:
    table = TinyRun(tmp_path, [("gaussian_noise>fog", 5), ("fog>snow", 5)]).add("tent", [1] * 4).table()
    assert [column.short for column in table.columns] == ["gauss>fog", "fog>snow"]
