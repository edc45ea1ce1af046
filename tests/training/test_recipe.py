"""Settings of a source training: the learning rate, and all mistakes at once."""

from __future__ import annotations

import json

import pytest

from ctta import ConfigError
from ctta.core import device as devices
from ctta.core.device import Kind
from ctta.experiments.sections import read_yaml
from ctta.training.recipe import Network, Recipe, make

SPEC = {"data": {"dataset": "embedded"}, "test": {"dataset": "embedded"}, "model": {"name": "small_resnet"}}


def test_the_learning_rate_by_hand():
    recipe = Recipe(lr=0.4, warmup=0.2)
    rates = [recipe.rate(step, 10) for step in range(11)]
    assert rates[:3] == pytest.approx([0.2, 0.4, 0.4])
    assert rates[6] == pytest.approx(0.2), "half way down"
    assert rates[10] == pytest.approx(0)
    assert Recipe(warmup=0.0).rate(0, 10) == 0.1


def test_all_mistakes_at_once(tmp_path):
    broken = {
        "dta": {},
        "data": {"dataset": "array"},
        "test": SPEC["test"] | {"batch": 0},
        "model": {"name": "resnet21", "mean": [0.5]},
        "train": {"epoch": 3, "lr": 0, "holdout": 2.0},
    }
    with pytest.raises(ConfigError) as error:
        make(broken)
    for said in (
        *("no section 'dta'. Did you mean 'data'", "Did you mean 'arrays'", "'batch'", "Did you mean 'resnet26'"),
        *("belong together", "Did you mean 'epochs'", "more than 0"),
    ):
        assert said in str(error.value)
    with pytest.raises(ConfigError, match=r"(?s)exclude each other.*less than 1.*device 'gpu'"):
        make(SPEC | {"train": {"holdout": 1.0, "device": "gpu"}})
    with pytest.raises(ConfigError, match="Give a name or a factory"):
        make({})
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(SPEC))
    assert make(read_yaml(path, ["train.epochs=7"])).train.epochs == 7


def test_data_are_clean_unless_a_section_names_domains():
    made = make(SPEC | {"data": {"domains": ["fog"], "severity": 3}})
    assert (made.data.domains, made.test.domains) == (("fog",), "clean")


def test_the_identity_is_of_all_settings():
    assert make(SPEC).identity() == make(SPEC | {"train": {"epochs": 100}}).identity(), "a default that is spelled out"
    assert make(SPEC).identity() != make(SPEC | {"train": {"epochs": 99}}).identity()


def test_former_words_are_named():
    with pytest.raises(ConfigError, match=r"^train: .*'no_flip' or 'none'\. 'unmirrored' is now called 'no_flip'\.$"):
        make(SPEC | {"train": {"augment": "unmirrored"}})


def test_a_network_is_built_with_the_classes_of_the_data():
    assert Network("small_resnet").build(3).fc.out_features == 3
    assert Network("embedded").build(7).fc.out_features == 7


@pytest.mark.parametrize(("fast", "found"), [(True, "autocast"), (False, "full")])
def test_the_precision_auto_is_what_the_device_is_fast_in(monkeypatch, fast, found):
    monkeypatch.setitem(devices.KINDS, "cpu", Kind(lambda: 1, fast_bfloat16=lambda: fast))
    made = make(SPEC | {"train": {"precision": "auto", "device": "cpu"}})
    assert (made.train.precision, made.train.device) == (found, "cpu")


def test_which_device_of_its_kind_it_is_decides_nothing(monkeypatch):
    monkeypatch.setitem(devices.KINDS, "cuda", Kind(lambda: 2))
    first, second, other = (make(SPEC | {"train": {"device": name}}).identity() for name in ("cuda", "cuda:1", "cpu"))
    assert first == second != other
