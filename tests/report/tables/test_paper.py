"""Comparison with the paper, with numbers worked by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ctta.data.corruptions import CLOUD_NAMES, PAPER
from ctta.paper import PaperRow, PaperTable, Setup
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder
from ctta.report.metrics import Value, over_seeds
from ctta.report.reports import RunReport
from ctta.report.results import Results
from ctta.report.tables import errors, render
from ctta.report.tables import paper as comparison
from ctta.report.tables.errors import StreamPart
from ctta.report.tables.paper import MethodResult, PaperComparison
from ctta.report.tables.render import Table

SETUP = Setup("tiny-c", "net", "tiny", 100, 10)
FOG = StreamPart((0,), "fog", "fog", "fog")
PRINTED = PaperTable(
    "tiny",
    "Table 0, tiny",
    SETUP,
    (
        PaperRow("Source", "source", {}, 40.0, None, {"fog": 42.0}),
        PaperRow("TENT", "tent", {}, 20.0, None, {"fog": 18.0}),
        PaperRow("CoTTA", "cotta", {}, 16.0, None, {"fog": 17.0}),
        PaperRow("DSS", "dss", {}, 16.0, None, {"fog": 15.0}),
    ),
)


def compare(*folders: RunFolder) -> PaperComparison | None:
    results = map(Results.load, folders)
    return comparison.build(*((one, errors.build(one)) for one in results))


def texts(table: Table) -> list[list[str]]:
    return [[column.head for column in table.columns], *([cell.text for cell in row] for row in table.rows)]


def over(*errors: float) -> Value:
    value = over_seeds(errors)
    assert value is not None
    return value


def one(mean: float, sd: float | None = None) -> Value:
    return Value(mean, sd, 1 if sd is None else 3)


# Worked numbers


@pytest.mark.parametrize(
    ("ours", "paper_sd", "words"),
    [
        (one(16.04), None, "as printed"),
        (one(15.96, 0.0), None, "as printed"),
        (one(16.6), None, "higher by 0.6, spread not known"),
        (one(15.2), None, "lower by 0.8, spread not known"),
        (one(16.3, 0.26), None, "within 1 sd"),  # 0.3 less 0.05 of rounding is 0.25
        (one(16.3, 0.24), None, "within 2 sd"),
        (one(15.0, 0.4), None, "lower by 1.0, beyond 2 sd"),
        (one(16.54, 0.3), 0.4, "within 1 sd"),  # the spreads of both are 0.5 together
        (one(17.8), 1.8, "within 1 sd"),
    ],
)
def test_how_far_a_mean_is(ours: Value, paper_sd: float | None, words: str) -> None:
    assert comparison.value_words(ours.mean - 16.0, ours.sd, paper_sd) == words


def test_pairs_are_kept_reversed_or_open() -> None:
    papers = {"a": 40.0, "b": 20.0, "c": 16.0, "d": 16.0}
    ours = {"a": over(29.7, 30, 30.3), "b": over(30.1, 31.4, 29.7), "c": over(34.9, 35, 35.1), "d": over(20, 20, 20)}
    judged = comparison.order(papers, ours)
    assert judged == {
        ("a", "b"): "open",  # by 0.4, and other seeds may turn it round: 0.4 and 1.4 less, 0.6 more
        ("a", "c"): "reversed",
        ("a", "d"): "kept",
        ("b", "c"): "reversed",
        ("b", "d"): "kept",
    }, "c and d are equal in the paper"


def test_few_seeds_that_agree_by_chance_decide_nothing() -> None:
    papers, ours = {"a": 2.0, "b": 1.0}, {"a": over(58.0, 58.0), "b": over(57.7, 57.9)}
    assert comparison.order(papers, ours)["a", "b"] == "open", "0.2 apart, and 12.71 standard errors of 0.1 are 1.27"
    assert comparison.order(papers, {**ours, "b": over(56.6, 56.8)})["a", "b"] == "kept", "1.3 apart"


def test_equal_means_share_a_rank() -> None:
    assert comparison.ranking({"a": 3.0, "b": 1.04, "c": 1.0, "d": 2.0}) == {"a": 4, "b": 1, "c": 1, "d": 3}


def test_values_are_compared_with_values() -> None:
    ours = {
        "Source": MethodResult("Source", one(40.0), {"fog": one(43.0)}),
        "CoTTA": MethodResult("CoTTA", one(16.5, 0.2), {"fog": one(16.0)}),
        "DSS": MethodResult("mine", one(15.0, 0.2), {"fog": one(16.5)}),
    }
    made = comparison.compare(PRINTED, ours, (FOG,), by_value=True)
    source, cotta, dss = made.lines
    assert (source.mean.difference, source.rank, source.verdict) == (0.0, (3, 3), "as printed; order kept")
    assert cotta.mean.difference == pytest.approx(0.5)
    assert cotta.rank == (1, 2)
    assert cotta.verdict == "higher by 0.5, beyond 2 sd; order kept"
    assert dss.verdict == "lower by 1.0, beyond 2 sd; order kept"
    assert [line.domains["fog"].difference for line in made.lines] == [1.0, -1.0, 1.5]
    assert made.summary() == "2 of 2 pairs of methods are in the paper's order."
    assert str(made.domain_pairs[0]) == "2/3", "in fog the paper has DSS below CoTTA, and we do not"
    assert texts(comparison.tables(made)[0])[2] == ["CoTTA", "16.0", "16.5 ± 0.2", "+0.5", "1 → 2", cotta.verdict]
    assert texts(comparison.tables(made)[1]) == [
        ["", "fog"],
        ["Source", "+1.0"],
        ["CoTTA", "−1.0"],
        ["mine", "+1.5"],
    ]


def test_order_alone() -> None:
    ours = {
        "Source": MethodResult("Source", one(12.0), {"fog": one(43.0)}),
        "TENT": MethodResult("TENT", one(14.0), {"fog": one(5.0)}),
        "DSS": MethodResult("DSS", one(10.0), {"fog": one(6.0)}),
    }
    made = comparison.compare(PRINTED, ours, (FOG,), by_value=False)
    assert [line.verdict for line in made.lines] == ["reversed with TENT", "reversed with Source", "order kept"]
    assert all(line.mean.difference is None for line in made.lines)
    assert made.summary() == "2 of 3 pairs of methods are in the paper's order, 1 reversed."
    assert texts(comparison.tables(made)[0])[0] == ["", "paper", "ours", "rank", "verdict"]
    assert texts(comparison.tables(made)[1]) == [["", "fog"], ["pairs kept", "2/3"]]


def test_what_is_not_complete_or_not_valid_does_not_count() -> None:
    ours = {
        "Source": MethodResult("Source", one(12.0)),
        "TENT": MethodResult("TENT", None, remark="waiting"),
        "DSS": MethodResult("DSS", one(10.0), remark="invalid: labels"),
    }
    made = comparison.compare(PRINTED, ours, by_value=True)
    assert [line.verdict for line in made.lines] == [
        "lower by 28.0, spread not known; nothing to rank it with",
        "waiting",
        "invalid: labels",
    ]
    assert [line.rank for line in made.lines] == [(1, 1), None, None]
    assert made.summary() == "There are no two rows to compare."


# From a run folder


def write(
    path: Path,
    paper: str | None,
    wrong: dict[str, int],  # of 20 samples in each domain, by label
    *,
    names: tuple[str, ...] = PAPER,
    dataset: str = "CIFAR-10-C",
    model: str = "wrn28_10",
    images: int = 20,
    fields: dict[str, dict[str, Any]] | None = None,
    worse: dict[str, int] | None = None,  # more wrong ones, by domain
    **stream: Any,
) -> RunFolder:
    """Two seeds of every label; the second has one more wrong answer in every domain."""
    folder, cells, methods = RunFolder(path), [], []
    for label in wrong:
        method = label.lower().split()[0]
        said = (fields or {}).get(label, {})
        methods.append({"method": method, "label": label, "preset": None, "fields": said})
        preset = "cifar10" + ("+lean" if "lean" in label else "")
        cells += [Cell(f"{label}-s{seed}", method, label, seed, preset, said) for seed in (0, 1)]
    about = {"dataset": dataset, "images": images, "batch": 200, "boundaries": "known", **stream}
    about["domains"] = [[name, 5] for name in names]
    experiment = {"model": {"name": model}, "methods": methods, "paper": paper}
    folder.write_run(Run("tiny", "abc", experiment, about, tuple(cells), {}))
    for cell in cells:
        records = []
        for step, name in enumerate(names):
            count = wrong[cell.label] + cell.seed + (worse or {}).get(name, 0)
            records.append(Record(cell.method, cell.seed, step, name, 5, 20, count, 0.1, {}, position=step))
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in records)
        folder.records_path(cell.cell).write_text(lines)
        folder.write_done(cell.cell, Done(len(names), 20 * len(names), 0, 1.0, 1.0))
    return folder


def test_one_seed_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path, "table1", {"Source": 9, "DSS": 3})
    head = folder.run()
    folder.write_run(replace(head, cells=tuple(cell for cell in head.cells if cell.seed == 0)))
    made = compare(folder)
    assert made is not None
    assert "One seed: the verdicts allow for other samples, not for other seeds." in made.remarks


@pytest.mark.parametrize(
    ("dss", "verdict"),
    [
        # 20 samples per batch, two batches of each of 15 domains, so two groups of 300: CoTTA 4 of 20 in all of them.
        ((3, 3), "order kept"),  # 15 less in each group: no variation at all
        ((5, 5), "reversed with CoTTA"),
        ((2, 5), "open with CoTTA"),  # 10.0 and -5.0 points less, on average 2.5: 12.7 standard errors of 7.5 reach 0
        ((5, 4), "open with CoTTA"),  # 5.0 and 0 points more
    ],
)
def test_one_seed_is_judged_by_its_batches(tmp_path: Path, dss: tuple[int, int], verdict: str) -> None:
    folder, counts = RunFolder(tmp_path), {"CoTTA": (4, 4), "DSS": dss}
    cells = [Cell(f"{label}-s0", label.lower(), label, 0, "cifar10", {}) for label in counts]
    about = {"dataset": "CIFAR-10-C", "images": 40, "batch": 20, "boundaries": "known"}
    about["domains"] = [[name, 5] for name in PAPER]
    experiment = {"model": {"name": "wrn28_10"}, "methods": [], "paper": "table1"}
    folder.write_run(Run("tiny", "abc", experiment, about, tuple(cells), {}))
    for cell in cells:
        batches = [(place, name, wrong) for place, name in enumerate(PAPER) for wrong in counts[cell.label]]
        lines = [
            Record(cell.method, 0, step, name, 5, 20, wrong, 0.1, {}, position=place).line
            for step, (place, name, wrong) in enumerate(batches)
        ]
        folder.records_path(cell.cell).write_bytes(b"".join(lines))
        folder.write_done(cell.cell, Done(len(lines), 20 * len(lines), 0, 1.0, 1.0))
    made = compare(folder)
    assert made is not None
    said = [line.verdict.partition("; ")[2] for line in made.lines]
    assert said == [verdict.replace("CoTTA", "DSS"), verdict]
    # Each domain has two batches, so that it is judged in the same way; in the paper some have the other order.
    judged = [pairs for pairs in made.domain_pairs if pairs.judged]
    assert judged
    assert all((pairs.open == pairs.judged) == ("open" in verdict) for pairs in judged)


def test_a_run_without_a_table_is_not_compared(tmp_path: Path) -> None:
    assert compare(write(tmp_path, None, {"Source": 9})) is None


def test_reduced_size_is_compared_and_said(tmp_path: Path) -> None:
    # 3 and 4 of 20 are 15 and 20 %: mean 17.5, standard deviation sqrt(12.5) = 3.54. The paper has 16.0.
    made = compare(write(tmp_path, "table1", {"Source": 9, "DSS": 3}, fields={"DSS": {"views": 8}}))
    assert made is not None
    assert made.by_value
    source, dss = made.lines
    assert source.mean.ours == Value(pytest.approx(47.5), pytest.approx(12.5**0.5), 2)
    assert source.verdict == "higher by 4.0, reduced size; order kept"
    assert dss.verdict == "higher by 1.5, reduced size; order kept"
    assert dss.domains["fog"].difference == pytest.approx(17.5 - 12.5)
    assert made.remarks == (
        "Reduced size: 20 of 10,000 images per domain, so methods that learn see less of the stream, and the spread "
        "over seeds does not cover the choice of images.",
        "Not the paper's settings: DSS (views 8).",
        "Not in this run: BN Adapt, TENT, AdaContrast, Conjugate PL, CoTTA.",
    )


def test_whatever_is_not_as_in_the_paper_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path, "table1", {"DSS": 3}, images=10_000, boundaries="unknown", batch=50)
    made = compare(folder)
    assert made is not None
    assert made.remarks[:2] == ("Batch 50 instead of 200.", "Domain boundaries unknown; the paper's are known.")
    assert "reduced" not in made.lines[0].verdict


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dataset": "own arrays"}, "Other data (own arrays, not CIFAR-10-C): only the order is compared."),
        ({"model": "cifar_resnet20"}, "Another model (cifar_resnet20, not wrn28_10): only the order is compared."),
        ({"names": PAPER[::-1]}, "Other domains, or another order of them: only the order is compared."),
        ({"names": PAPER[:3]}, "Other domains, or another order of them: only the order is compared."),
    ],
)
def test_other_data_or_models_are_compared_by_order_alone(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    made = compare(write(tmp_path, "table1", {"Source": 3, "DSS": 9}, **changed))
    assert made is not None
    assert not made.by_value
    assert made.remarks[0] == words
    assert [line.verdict for line in made.lines] == ["reversed with DSS", "reversed with Source"]
    assert {line.mean.difference for line in made.lines} == {None}


def test_rows_are_found_by_their_settings(tmp_path: Path) -> None:
    fields = {
        "DSS a": {"parts": "dt", "threshold": 0.2},
        "DSS b": {"parts": "dt", "threshold": "dynamic"},
        "DSS c": {"parts": "dt+pl", "threshold": "dynamic", "views": 8},
    }
    folder = write(tmp_path, "table7_cifar100c", dict.fromkeys(fields, 6), fields=fields)
    made = compare(folder)
    assert made is not None
    assert [(line.label, line.mean.paper) for line in made.lines] == [("DSS a", 32.4), ("DSS b", 31.8), ("DSS c", 31.0)]
    assert "Not the paper's settings: DSS c (views 8)." in made.remarks


def test_of_two_rows_the_one_with_the_paper_s_settings_is_meant(tmp_path: Path) -> None:
    made = compare(write(tmp_path, "table1", {"DSS lean": 2, "DSS": 3}))
    assert made is not None
    assert [line.label for line in made.lines] == ["DSS"]


def test_ten_orders_are_one_set_of_domains(tmp_path: Path) -> None:
    world = {"dataset": "ImageNet-C (resize256)", "model": "resnet50", "images": 5000, "batch": 64}
    made = compare(write(tmp_path, "table4", {"CoTTA": 12}, names=table_4_order(), **world))
    assert made is not None
    assert made.by_value
    (line,) = made.lines
    # 60 and 65 %: 62.5 ± 3.54, and the paper has 63.0 ± 1.8
    assert (line.mean.difference, line.paper_sd) == (pytest.approx(-0.5), 1.8)
    assert line.verdict.startswith("within 1 sd")
    assert "One order of the domains; the paper's numbers are means over ten." in made.remarks


def test_orders_count_once_each(tmp_path: Path) -> None:
    world = {"dataset": "ImageNet-C (resize256)", "model": "resnet50", "images": 5000, "batch": 64}
    folders = [
        write(tmp_path / str(wrong), "table4", {"CoTTA": wrong, "DSS": 12}, names=names, **world)
        for wrong, names in ((12, PAPER), (13, table_4_order()))
    ]
    made = compare(*folders)
    assert made is not None
    assert made.by_value
    # 62.5 and 67.5 %, each a mean over two seeds
    assert made.lines[0].mean.ours == Value(pytest.approx(65.0), pytest.approx(12.5**0.5), 2)
    assert made.lines[1].mean.ours == Value(pytest.approx(62.5), 0.0, 2)
    assert "2 orders of the domains; the paper's numbers are means over ten." in made.remarks


def table_4_order() -> tuple[str, ...]:
    return ("contrast", "gaussian_noise", *sorted(set(PAPER) - {"contrast", "gaussian_noise"}))


def test_means_leave_out_what_cannot_be_made_alike(tmp_path: Path) -> None:
    world = {"dataset": "ScanObjectNN", "model": "dgcnn", "images": 581, "samples": "clouds"}
    worse = {"occlusion": 10, "lidar": 10}
    made = compare(write(tmp_path, "table5", {"DSS": 7}, names=CLOUD_NAMES, worse=worse, **world))
    assert made is not None
    assert made.by_value
    assert made.lines[0].mean.ours == Value(pytest.approx(37.5), pytest.approx(12.5**0.5), 2)
    assert made.lines[0].mean.paper == 35.9
    assert made.lines[0].domains["lidar"].ours == Value(pytest.approx(87.5), pytest.approx(12.5**0.5), 2)


# Rendering


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write(tmp_path, "table3", {"Source": 16, "DSS": 13}, dataset="ImageNet-C (resize256)", model="resnet50")


def test_csv_has_a_line_a_number(folder: RunFolder) -> None:
    made = compare(folder)
    assert made is not None
    lines = list(csv.DictReader(io.StringIO(render.to_csv(comparison.data(made)))))
    assert len(lines) == 2 * 16
    assert lines[0] | {"table": "table3", "domain": "gaussian_noise", "paper": "95.30", "ours": "82.50"} == lines[0]
    assert lines[0]["difference"] == "-12.80"
    assert (lines[15]["domain"], lines[15]["paper"], lines[15]["verdict"]) == ("mean", "82.40", made.lines[0].verdict)


def test_markdown_and_json(folder: RunFolder) -> None:
    made = compare(folder)
    assert made is not None
    text = "\n".join(map(render.to_markdown, comparison.tables(made)))
    assert "| Source | 82.4 | 82.5 ± 3.5 | +0.1 | 2 |" in text
    assert "The paper prints a mean of 77.2 for Source; its own columns average 82.4." in text
    assert "| Source | −12.8 |" in text
    assert json.loads(json.dumps(render.plain_data(made)))["lines"][0]["mean"]["paper"] == 82.4


def test_files_of_the_run(folder: RunFolder) -> None:
    report = RunReport.load(folder)
    report.write()
    made = report.comparison
    assert made is not None
    assert (folder.path / "comparison.csv").read_text() == render.to_csv(comparison.data(made))
    assert json.loads((folder.path / "comparison.json").read_text())["summary"] == made.summary()
    assert "## Comparison with the paper: Table 3, ImageNet-C" in (folder.path / "table.md").read_text()
    assert r"82.4 & 82.5 $\pm$ 3.5 & +0.1" in (folder.path / "comparison.tex").read_text()


def test_the_page_has_a_section(folder: RunFolder) -> None:
    page = RunReport.load(folder).page()
    assert 'href="#paper"' in page
    assert "Comparison with the paper: Table 3, ImageNet-C." in page
    assert re.search(r"<td>82.4</td>\s*<td>82.5<small>±3.5</small></td>\s*<td>\+0.1</td>", page)
    assert "The paper prints a mean of 66.2 for BN Adapt" in page
