"""Every file of experiments/paper: it is complete, names its table, and runs with the command in its head."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ctta import paper
from ctta.data.datasets import DATASETS
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.experiments.check import check
from ctta.experiments.experiment import Experiment
from ctta.records.run_folder import RunFolder
from ctta.report.reports import RunReport
from ctta.running.runner import execute

FOLDER = Path(__file__).parents[2] / "experiments" / "paper"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if not path.stem.startswith("train_"))


def single(path: Path, changes: list[str]) -> dict[str, Any]:
    """The sections of one experiment; of a grid, its first point."""
    sections = experiments.read_yaml(path, changes)
    return {name: values for name, values in sections.items() if name not in ("grid", "over")}


def load(path: Path, changes: list[str]) -> Experiment:
    return experiments.make(single(path, changes))


def reduced(path: Path) -> list[str]:
    """The overrides of the command in the head that runs on the embedded data."""
    (command,) = re.findall(rf"^# +(ctta run \S+{path.name} .*(?:images|embedded).*)$", path.read_text(), re.MULTILINE)
    words = shlex.split(command)
    return [words[place + 1] for place, word in enumerate(words) if word == "--set"]


def test_there_is_a_file_for_every_table():
    numbers = {int(found[1]) for path in FILES if (found := re.match(r"table(\d+)_", path.stem))}
    assert numbers == set(range(1, 11))
    assert (FOLDER / "figure_threshold.yaml") in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_the_paper_s_experiment(path):
    made = load(path, [])
    table = paper.table(made.paper)
    assert path.stem.split("_")[0] in (made.paper.split("_")[0], "figure")
    assert DATASETS[made.data.dataset].named(made.data) == table.setup.dataset
    assert made.model.name == table.setup.model
    assert made.data.batch == (table.setup.batch or made.data.batch)
    assert made.data.images in (None, table.setup.images)
    cells = made.cells(
        (1, 1024, 3) if table.setup.preset == "clouds" else (1, 3, *[224 if "resnet50" in made.model.name else 32] * 2)
    )
    assert {cell.preset for cell in cells} == {table.setup.preset}
    for row in table.rows if path.stem != "figure_threshold" else table.rows[-1:]:
        same = [cell for cell in cells if cell.method == row.method and row.fields.items() <= cell.config.items()]
        assert len(same) == 1, row.title


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_check_says_what_is_missing(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sections = single(path, [])
    found = [finding for finding in check(sections) if finding.kind == "problem"]
    assert {finding.about for finding in found} == {"data", "model"}
    for about, name in (("data", sections["data"]["path"]), ("model", sections["model"]["weights"])):
        assert any(name in finding.text for finding in found if finding.about == about)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_runs_on_the_embedded_data(path, tmp_path):
    clouds = "embedded_clouds" in path.read_text()
    domains = "[uniform, shear]" if clouds else "[fog, snow]"
    tiny = ["data.images=4", "data.batch=4", f"data.domains={domains}", "method.views=1"]
    made = load(path, [*reduced(path), *tiny])
    folder = RunFolder(tmp_path)
    steps = list(execute(made, folder))
    assert len(steps) == 2 * len(made.cells((4, 3, 32, 32)))
    report = RunReport.load(folder)
    beside = report.comparison
    assert beside is not None
    assert not beside.by_value
    assert "only the order is compared" in beside.remarks[0]
    assert len(beside.lines) == len(report.errors.rows)
    if path.stem == "figure_threshold":
        drawn = re.search(r'id="data">(.*?)</script>', report.page(), re.DOTALL)
        series = json.loads(drawn[1])["charts"]["threshold-0"]["series"]
        for line in series:
            assert line["values"] == [step.record.info[line["label"]] for step in steps]
        assert [line["label"] for line in series] == ["confidence", "threshold"]


@pytest.mark.parametrize(
    ("name", "column"),
    [("table6_components", "imagenetc"), ("table7_threshold", "imagenetc"), ("table8_temperature", "imagenetc")],
)
def test_the_other_columns_are_a_few_settings_away(name, column):
    made = experiments.load(
        FOLDER / f"{name}.yaml",
        [
            f"paper={name.partition('_')[0]}_{column}",
            "method.preset=imagenet",
            "data={dataset: imagenet_c, path: FOLDER, images: 5000, batch: 64}",
            "model={name: resnet50, weights: FILE}",
        ],
    )
    assert {cell.preset for cell in made.cells((1, 3, 224, 224))} == {"imagenet"}
    assert paper.table(made.paper).setup.dataset == DATASETS[made.data.dataset].named(made.data)


def test_ten_orders_are_a_grid():
    sections = experiments.read_yaml(FOLDER / "table4_imagenet_c_orders.yaml")
    assert sections["grid"] == {"protocol.order": list(paper.orders())}
    assert sections["over"] == ["protocol.order"]
    made = sweep.make(sections)
    assert [one.protocol.order for one in made.experiments.values()] == list(paper.orders())
    assert {one.paper for one in made.experiments.values()} == {"table4"}
