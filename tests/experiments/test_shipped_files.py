"""Every YAML file that is shipped can be loaded; those of experiments/paper are complete and run as their head says."""

from __future__ import annotations

import json
import os
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
from ctta.experiments.sections import read_yaml
from ctta.records.run_folder import RunFolder
from ctta.report.reports import RunReport
from ctta.training import recipe
from run_folders import execute

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for folder in ("experiments", "src/ctta/assets") for path in (ROOT / folder).rglob("*.yaml"))
FOLDER = ROOT / "experiments" / "paper"
FILES = [path for path in SHIPPED if path.parent == FOLDER and not path.stem.startswith("train_")]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_left_out():
    """Counted by another walk, with every spelling of the ending."""
    found = []
    for folder in ("experiments", "src/ctta/assets"):
        for place, _, names in os.walk(ROOT / folder):
            found += [Path(place) / name for name in names if name.lower().endswith((".yaml", ".yml"))]
    assert sorted(found) == SHIPPED
    assert {path.parent.name for path in SHIPPED} == {"experiments", "paper", "protocols", "assets"}


@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_every_shipped_file_loads(path):
    values = read_yaml(path)
    if "train" in values:
        assert recipe.make(values).train.epochs
    elif "grid" in values:
        assert sweep.make(values).experiments
    else:
        assert experiments.make(values).cells((1, 3, 32, 32))


@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_the_head_of_a_file_names_files_that_exist(path):
    text = path.read_text()
    for name in re.findall(r"(?:experiments|results)/[\w/]+\.\w+", text):
        assert (ROOT / name).is_file(), name
    assert set(re.findall(r"ctta (?:run|train) (\S+\.yaml)", text)) <= {relative(path)}


def single(path: Path, changes: list[str]) -> dict[str, Any]:
    """The sections of one experiment; of a grid, its first point."""
    sections = read_yaml(path, changes)
    return {name: values for name, values in sections.items() if name not in ("grid", "average_over")}


def load(path: Path, changes: list[str]) -> Experiment:
    return experiments.make(single(path, changes))


def reduced(path: Path) -> list[str]:
    """The overrides of the command in the head that uses the embedded data."""
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
            recorded = [record.info[line["label"]] for record in folder.records(steps[0].job.cell.cell)]
            assert line["values"] == pytest.approx(recorded, abs=1e-3)
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
    sections = read_yaml(FOLDER / "table4_imagenet_c_orders.yaml")
    assert sections["grid"] == {"protocol.order": list(paper.orders())}
    assert sections["average_over"] == ["protocol.order"]
    made = sweep.make(sections)
    assert [one.protocol.order for one in made.experiments.values()] == list(paper.orders())
    assert {one.paper for one in made.experiments.values()} == {"table4"}
