"""Strict configuration: all mistakes at once, identity, overrides."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ctta.base.errors import ConfigError, StateError
from ctta.core.execution import FAST, Execution
from ctta.data.corruptions import PAPER
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS
from ctta.experiments import experiment as experiments
from ctta.models import MODELS
from runs import run

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


def test_networks_are_run_fast_unless_the_section_says_otherwise():
    assert experiments.make(GOOD).execution == FAST.resolved()
    assert experiments.make(GOOD | {"execution": {"precision": "bfloat16"}}).execution.precision == "bfloat16"
    careful = {"channels_last": False, "views_per_pass": 1, "parallel_passes": 1}
    assert experiments.make(GOOD | {"execution": careful}).execution == Execution().resolved()
    with pytest.raises(ConfigError, match="execution must be a mapping"):
        experiments.make(GOOD | {"execution": "fast"})
    with pytest.raises(ConfigError, match="'lanes' of Execution is now called 'parallel_passes'"):
        experiments.make(GOOD | {"execution": {"lanes": 2}})


def test_notes_are_a_list():
    with pytest.raises(ConfigError, match=r"notes must be a list of at most 100 texts .*\. Got 'one'\."):
        experiments.make(GOOD | {"notes": "one"})


def test_names_must_tell_rows_apart():
    with pytest.raises(ConfigError, match="nearly so"):
        experiments.make({"methods": ["dss", {"method": "dss", "views": 2, "name": "dss!"}]})
    with pytest.raises(ConfigError, match="needs a letter"):
        experiments.make({"methods": [{"method": "dss", "name": "--"}]})


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
    assert cells[2].config["augmentation_threshold"] == 0.92
    assert made.cells((10, 3, 224, 224))[2].config["augmentation_threshold"] == 0.1


def test_identity_is_what_decides_the_numbers():
    same = experiments.make({**GOOD, "name": "other", "notes": ["x"]})
    assert experiments.make(GOOD).identity() == same.identity()
    assert experiments.make(GOOD).identity() != experiments.make(GOOD | {"seeds": [1]}).identity()
    cached = experiments.make({**GOOD, "data": {**GOOD["data"], "cache": "somewhere"}})
    assert cached.identity() == same.identity()


def test_the_paper_s_table_is_named_and_decides_no_number():
    made = experiments.make({**GOOD, "paper": "table1"})
    assert made.paper == asdict(made)["paper"] == "table1"
    assert made.identity() == experiments.make(GOOD).identity()
    with pytest.raises(ConfigError, match=r"paper: There is no table 'table6'. Did you mean 'table"):
        experiments.make({**GOOD, "paper": "table6"})
    with pytest.raises(ConfigError, match=r"(?s)no section 'papper'.*Did you mean 'paper'"):
        experiments.make({**GOOD, "papper": "table1"})
    with pytest.raises(ConfigError, match="There is no table 3"):
        experiments.make({**GOOD, "paper": 3})


def test_variants_of_presets():
    made = experiments.make(
        {"methods": [{"method": "dss", "preset": "fast"}, {"method": "tent", "preset": "cifar100"}]}
    )
    fast, tent = made.cells((1, 3, 32, 32))
    assert (fast.preset, fast.config["views"], fast.config["draw"]) == ("cifar10+fast", 4, "sample")
    assert tent.preset == "cifar100"
    with pytest.raises(ConfigError, match=r"(?s)DSS has no preset 'fats'.*TENT has no preset 'fast'"):
        experiments.make({"methods": [{"method": "dss", "preset": "fats"}, {"method": "tent", "preset": "fast"}]})


def test_the_baseline_is_a_row_and_decides_no_record():
    made = experiments.make(GOOD | {"baseline": "DSS"})
    assert made.baseline == "DSS"
    assert made.identity() == experiments.make(GOOD).identity()
    with pytest.raises(ConfigError, match=r"there is no row 'DS'. Did you mean 'DSS'\?"):
        experiments.make(GOOD | {"baseline": "DS"})


def test_what_is_measured_in_addition():
    made = experiments.make(GOOD | {"measure": {"clean_samples": 50}})
    assert made.measure.clean_samples == 50
    assert made.identity() != experiments.make(GOOD).identity(), "the folder holds something else"
    assert experiments.make(GOOD | {"measure": {}}).identity() == experiments.make(GOOD).identity()
    with pytest.raises(ConfigError) as caught:
        experiments.make(
            {
                "data": {"dataset": "cifar10_c", "path": "somewhere"},
                "measure": {"clean_samples": 50},
                "methods": ["dsss"],
                "baseline": 3,
            }
        )
    text = str(caught.value)
    for words in ("measure: clean_samples needs clean samples, and CIFAR-10-C has none", "'dsss'", "no row 3"):
        assert words in text, text
    with pytest.raises(
        ConfigError, match=r"measure: .*'clean_samples' of Measure must be a whole number or none, at least 1"
    ):
        experiments.make(GOOD | {"measure": {"clean_samples": 0}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"boundaries": "told"}}, "'told' is now called 'known'."),
        ({"data": {"boundaries": "hidden"}}, "'hidden' is now called 'unknown'."),
        ({"measure": {"clean": 5}}, "The field 'clean' of Measure is now called 'clean_samples'."),
        ({"methods": [{"method": "dss", "label": "mine"}]}, "methods: 'label' is now called 'name'."),
        ({"over": ["data.batch"]}, "There is no section 'over'. It is now called 'average_over'."),
    ],
)
def test_former_words_are_named(values, message):
    with pytest.raises(ConfigError) as caught:
        experiments.make(GOOD | values)
    (line,) = str(caught.value).splitlines()
    assert line.endswith(message)


def weights_spec(path, weights):
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(20) % 10)
    return {
        "data": {"dataset": "arrays", "path": str(path), "domains": ["fog"], "batch": 10},
        "model": {"name": "cifar_resnet20", "weights": str(weights)},
        "methods": ["source"],
    }


def test_other_content_is_another_experiment_and_another_place_is_not(tmp_path):
    torch.manual_seed(0)
    model = MODELS["cifar_resnet20"].build()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    spec = weights_spec(tmp_path / "a.npz", tmp_path / "w.safetensors")
    run(spec, tmp_path / "run")
    (tmp_path / "there").mkdir()
    (tmp_path / "w.safetensors").rename(tmp_path / "there" / "other.safetensors")
    (tmp_path / "a.npz").rename(tmp_path / "there" / "b.npz")
    moved = weights_spec(tmp_path / "there" / "b.npz", tmp_path / "there" / "other.safetensors")
    run(moved, tmp_path / "run")
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    save_file(model.state_dict(), tmp_path / "there" / "other.safetensors")
    with pytest.raises(StateError, match=r"files\.weights was '\w{16}', is '\w{16}'"):
        run(moved, tmp_path / "run")


def test_a_row_that_is_made_source_free_needs_no_source_data():
    data, source = ({"dataset": "embedded", "images": 100, "first": first} for first in (0, 9000))
    methods = [{"method": "rmt", "source_free": True, "name": "without"}, {"method": "rmt", "name": "with"}]
    made = experiments.make({"data": data, "source": source, "model": {"name": "embedded"}, "methods": methods})
    assert [cell.traits["source"] for cell in made.cells((1, 3, 32, 32))] == ["none", "statistics"]
