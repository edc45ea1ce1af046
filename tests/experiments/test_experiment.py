"""Strict configuration: all mistakes at once, identity, overrides."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctta.base.errors import ConfigError
from ctta.data.corruptions import PAPER
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.training import learner as trainings

ROOT = Path(__file__).parents[2]
GOOD = {"data": {"images": 20, "batch": 10}, "methods": ["source", {"method": "dss", "views": 2}]}


def test_five_mistakes_are_five_messages():
    with pytest.raises(ConfigError) as caught:
        experiments.make(
            {
                "dta": {},
                "data": {"severity": 9, "domains": ["fogg"], "bach": 3},
                "methods": ["tentt", {"method": "dss", "lr": "fast"}],
                "seeds": "all",
            }
        )
    text = str(caught.value)
    for words in (
        "no section 'dta'. Did you mean 'data'?",
        "'severity' of Data must be a whole number, at least 0 and at most 5. Got 9",
        "no field 'bach'. Did you mean 'batch'?",
        "no method 'tentt'. Did you mean 'tent'?",
        "'lr' of DSSConfig must be a number",
        "seeds must be a list",
    ):
        assert words in text, text


def test_names_are_checked():
    with pytest.raises(ConfigError, match=r"no corruption 'fogg'. Did you mean 'fog'\?"):
        experiments.make({"data": {"domains": ["fogg"]}})
    with pytest.raises(ConfigError, match="needs a path"):
        experiments.make({"data": {"dataset": "cifar10_c"}})
    with pytest.raises(ConfigError, match="two rows are called 'DSS'"):
        experiments.make({"methods": ["dss", {"method": "dss", "views": 2}]})


def test_labels_must_tell_rows_apart():
    with pytest.raises(ConfigError, match="nearly so"):
        experiments.make({"methods": ["dss", {"method": "dss", "views": 2, "label": "dss!"}]})
    with pytest.raises(ConfigError, match="needs a letter"):
        experiments.make({"methods": [{"method": "dss", "label": "--"}]})


def test_model_names_are_checked():
    with pytest.raises(ConfigError, match=r"no model 'wrn28'. Did you mean 'wrn28_10'\?"):
        experiments.make({"model": {"name": "wrn28"}})
    with pytest.raises(ConfigError, match="belong together"):
        experiments.make({"model": {"mean": [0.5, 0.5, 0.5]}})
    with pytest.raises(ConfigError, match="needs its weights"):
        experiments.make({"model": {"name": "wrn28_10"}}).model.load()


def test_source_data_are_asked_for_where_a_method_needs_them():
    with pytest.raises(ConfigError, match=r"'eata' needs source data.*Add a section"):
        experiments.make({"methods": ["source", "eata"]})
    made = experiments.make({"data": {"images": 500, "batch": 50}, "source": {"first": 8000, "images": 100}})
    assert made.source == Data(domains="clean", severity=0, first=8000, images=100, batch=50)
    assert "eata" in [method.method for method in made.methods]
    assert "eata" not in [method.method for method in experiments.make({}).methods], "all that can run, without a list"
    plain = experiments.make(GOOD)
    assert plain.source is None
    assert plain.identity() != experiments.make({**GOOD, "source": {"first": 8000}}).identity()


def test_source_data_are_clean_and_not_the_streams():
    with pytest.raises(ConfigError) as caught:
        experiments.make({"data": {"images": 500}, "source": {"first": 499, "severity": 3, "domains": ["fog"]}})
    for words in ("in the stream too", "leave 'severity' out", "leave 'domains' out"):
        assert words in str(caught.value)
    with pytest.raises(ConfigError, match="in the stream too"):
        experiments.make({"source": {"first": 500}})
    with pytest.raises(ConfigError, match=r"source: .*needs a path"):
        experiments.make({"source": {"dataset": "arrays"}})
    with pytest.raises(ConfigError, match="source must be a mapping"):
        experiments.make({"source": "embedded"})
    experiments.make({"data": {"first": 100}, "source": {"images": 100}})


def test_defaults_and_cells():
    made = experiments.make(GOOD | {"seeds": [0, 1]}, name="mine")
    assert made.name == "mine"
    assert DATASETS["embedded"].names(made.data) == PAPER
    cells = made.cells((10, 3, 32, 32))
    assert [cell.cell for cell in cells] == ["source-s0", "source-s1", "dss-s0", "dss-s1"]
    assert cells[2].config["views"] == 2
    assert cells[2].config["gate"] == 0.92
    assert made.cells((10, 3, 224, 224))[2].config["gate"] == 0.1


def test_identity_is_what_decides_the_numbers():
    same = experiments.make({**GOOD, "name": "other", "notes": ["x"]})
    assert experiments.make(GOOD).identity() == same.identity()
    assert experiments.make(GOOD).identity() != experiments.make(GOOD | {"seeds": [1]}).identity()
    cached = experiments.make({**GOOD, "data": {**GOOD["data"], "cache": "somewhere"}})
    assert cached.identity() == same.identity()


def test_the_paper_s_table_is_named_and_decides_no_number():
    made = experiments.make({**GOOD, "paper": "table1"})
    assert made.paper == made.asdict()["paper"] == "table1"
    assert made.identity() == experiments.make(GOOD).identity()
    with pytest.raises(ConfigError, match=r"paper: There is no table 'table6'. Did you mean 'table"):
        experiments.make({**GOOD, "paper": "table6"})
    with pytest.raises(ConfigError, match=r"(?s)no section 'papper'.*Did you mean 'paper'"):
        experiments.make({**GOOD, "papper": "table1"})
    with pytest.raises(ConfigError, match="There is no table 3"):
        experiments.make({**GOOD, "paper": 3})


def test_overrides():
    data = experiments.override(GOOD, ["data.images=7", "method.views=3", "seeds=[4, 5]", "data.domains=[fog]"])
    made = experiments.make(data)
    assert made.data.images == 7
    assert made.seeds == (4, 5)
    assert made.data.domains == ("fog",)
    assert [method.fields for method in made.methods] == [{}, {"views": 3}]
    lean = experiments.make(experiments.override(GOOD, ["method.preset=cifar100"]))
    assert [method.preset for method in lean.methods] == ["cifar100", "cifar100"]
    with pytest.raises(ConfigError, match=r"section\.field=value"):
        experiments.override(GOOD, ["data.images"])


def test_every_shipped_experiment_loads():
    paths = [*ROOT.glob("experiments/**/*.yaml"), *ROOT.glob("src/ctta/assets/*.yaml")]
    assert len(paths) >= 6
    for path in paths:
        if path.stem.startswith("train_"):
            assert trainings.load(path).train.epochs
        elif "grid" in (values := experiments.read_yaml(path)):
            assert sweep.make(values).experiments
        else:
            assert experiments.make(values).cells((1, 3, 32, 32))


def test_broken_files(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        experiments.load(tmp_path / "none.yaml")
    path = tmp_path / "a.yaml"
    path.write_text("data: [1, 2")
    with pytest.raises(ConfigError, match="is not YAML"):
        experiments.load(path)
    path.write_text("- a")
    with pytest.raises(ConfigError, match="must hold a mapping"):
        experiments.load(path)


def test_variants_of_presets():
    made = experiments.make(
        {"methods": [{"method": "dss", "preset": "lean"}, {"method": "tent", "preset": "cifar100"}]}
    )
    lean, tent = made.cells((1, 3, 32, 32))
    assert (lean.preset, lean.config["views"], lean.config["draw"]) == ("cifar10+lean", 4, "sample")
    assert tent.preset == "cifar100"
    with pytest.raises(ConfigError, match=r"(?s)DSS has no preset 'len'.*TENT has no preset 'lean'"):
        experiments.make({"methods": [{"method": "dss", "preset": "len"}, {"method": "tent", "preset": "lean"}]})


def test_the_baseline_is_a_row_and_decides_no_record():
    made = experiments.make(GOOD | {"baseline": "DSS"})
    assert made.baseline == "DSS"
    assert made.identity() == experiments.make(GOOD).identity()
    with pytest.raises(ConfigError, match=r"there is no row 'DS'. Did you mean 'DSS'\?"):
        experiments.make(GOOD | {"baseline": "DS"})


def test_what_is_measured_beside_the_stream():
    made = experiments.make(GOOD | {"measure": {"clean": 50}})
    assert made.measure.clean == 50
    assert made.identity() != experiments.make(GOOD).identity(), "the folder holds something else"
    assert experiments.make(GOOD | {"measure": {}}).identity() == experiments.make(GOOD).identity()
    with pytest.raises(ConfigError) as caught:
        experiments.make(
            {
                "data": {"dataset": "cifar10_c", "path": "somewhere"},
                "measure": {"clean": 50},
                "methods": ["dsss"],
                "baseline": 3,
            }
        )
    text = str(caught.value)
    for words in ("measure: clean samples are to be asked, and CIFAR-10-C has none", "'dsss'", "no row 3"):
        assert words in text, text
    with pytest.raises(ConfigError, match=r"measure: .*'clean' of Measure must be a whole number or none, at least 1"):
        experiments.make(GOOD | {"measure": {"clean": 0}})
