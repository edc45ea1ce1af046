"""Reading YAML files and overriding single settings."""

from __future__ import annotations

import pytest

from ctta.base.errors import ConfigError
from ctta.experiments import experiment as experiments
from ctta.experiments.sections import override, read_yaml

GOOD = {"data": {"images": 20, "batch": 10}, "methods": ["source", {"method": "dss", "views": 2}]}


def test_overrides():
    data = override(GOOD, ["data.images=7", "method.views=3", "seeds=[4, 5]", "data.domains=[fog]"])
    made = experiments.make(data)
    assert made.data.images == 7
    assert made.seeds == (4, 5)
    assert made.data.domains == ("fog",)
    assert [method.fields for method in made.methods] == [{}, {"views": 3}]
    preset = experiments.make(override(GOOD, ["method.preset=cifar100"]))
    assert [method.preset for method in preset.methods] == ["cifar100", "cifar100"]
    with pytest.raises(ConfigError, match=r"section\.field=value"):
        override(GOOD, ["data.images"])


def test_an_override_reaches_the_methods_that_run_by_default():
    values = override({}, ["method.temperature=0.5"])
    fields = {method.method: method.fields for method in experiments.make(values).methods}
    assert fields["dss"] == {"temperature": 0.5}
    assert fields["source"] == {}
    assert override({"grid": {}}, ["grid.data.batch=[1, 2]"]) == {"grid": {"data.batch": [1, 2]}}


def test_an_override_without_effect_is_a_mistake():
    with pytest.raises(ConfigError, match=r"--set method\.temprature=1: no method here has .*mean 'temperature'\?"):
        override(GOOD, ["method.temprature=1"])
    with pytest.raises(ConfigError, match="no method here has a field 'temperature'"):
        override({"methods": ["source", "tent"]}, ["method.temperature=1"])
    with pytest.raises(ConfigError, match=r"a field 'gate'\. It is now called 'augmentation_threshold'\."):
        override(GOOD, ["method.gate=0.5"])
    with pytest.raises(ConfigError, match=r"a field 'batch_share'\. It is now called 'batch_weight'\."):
        override({"methods": ["tent", "bn_adapt"]}, ["method.batch_share=0.5"])


def test_what_is_not_valid_stays_for_the_check_of_the_sections():
    broken = {"methods": ["dsss", 3, None], "data": 5}
    assert override(broken, ["method.lr=0.1", "data.batch=3"]) == broken
    assert override({"methods": 7}, ["method.lr=0.1"]) == {"methods": 7}


def test_broken_files(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        read_yaml(tmp_path / "none.yaml")
    path = tmp_path / "a.yaml"
    path.write_text("data: [1, 2")
    with pytest.raises(ConfigError, match="is not YAML"):
        read_yaml(path)
    path.write_text("- a")
    with pytest.raises(ConfigError, match="must hold a mapping"):
        read_yaml(path)
