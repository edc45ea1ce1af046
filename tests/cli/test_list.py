"""`ctta list`: every table, and the settings of one entry."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ctta import METHODS
from ctta.cli.app import app
from ctta.cli.list import RECOMMENDED
from ctta.data.corruptions import EXTRA, NAMES
from ctta.data.datasets import DATASETS
from ctta.data.protocols import KINDS
from ctta.models import MODELS
from ctta.paper import TITLES


def listed(*words):
    return json.loads(CliRunner().invoke(app, ["list", *words, "--json"], catch_exceptions=False).output)


@pytest.mark.parametrize(
    ("what", "noun", "table"),
    [
        ("methods", "method", dict.fromkeys([*RECOMMENDED, *TITLES, *METHODS])),
        ("models", "model", MODELS),
        ("datasets", "data set", DATASETS),
        ("protocols", "protocol", KINDS),
        ("corruptions", "corruption", NAMES),
    ],
)
def test_a_list_has_every_entry(what, noun, table):
    assert [row[noun] for row in listed(what)] == list(table)
    shown = CliRunner().invoke(app, ["list", what]).output.partition("\n\n")[0].splitlines()
    assert shown[0].startswith(noun)
    assert {line.split()[0] for line in shown[1:] if not line.startswith(" ")} == set(table)


def test_what_we_recommend_comes_first_then_the_rest_of_the_paper():
    names = [row["method"] for row in listed("methods")]
    assert names[:6] == ["sift", "dss", "tent", "bn_adapt", "shot", "rmt"]
    assert names[6:11] == ["source", "test_aug", "adacontrast", "conjugate_pl", "cotta"]


def test_what_methods_need():
    methods = {row["method"]: row for row in listed("methods")}
    assert (methods["eata"]["source"], methods["tent"]["source"]) == ("statistics", "none")
    assert (methods["cotta"]["forward"], methods["sar"]["backward"]) == ("3 to 34", "2")
    assert methods["tent"]["description"] == METHODS["tent"].__doc__.splitlines()[0]


def test_sets_of_corruptions():
    assert [row["corruption"] for row in listed("corruptions") if row["set"] == "extra"] == list(EXTRA)


def test_a_sentence_per_method_and_on_a_wide_terminal_what_it_needs(monkeypatch):
    for width, wide in (("160", True), ("100", False)):
        monkeypatch.setenv("COLUMNS", width)
        output = CliRunner().invoke(app, ["list"]).output
        assert METHODS["source"].__doc__.splitlines()[0] in output
        assert ("norm parameters" in output) == wide
        assert ("Not shown here: learns, forward, backward," in output) == (not wide)
        assert "First what we recommend, then the paper's methods" in output


def test_presets():
    rows = {row["preset"]: row for row in listed("presets")}
    assert list(rows) == ["cifar10", "cifar100", "imagenet", "clouds", "paper", "auto", "fast"]
    assert (rows["cifar10"]["methods"], rows["fast"]) == (
        "all",
        {"preset": "fast", "kind": "variant", "methods": "cotta, dss"},
    )
    assert {"dss", "tent"} <= set(rows["auto"]["methods"].split(", "))
    fast = {row["method"]: row["sets"] for row in listed("presets", "fast")}
    assert fast["dss"].startswith("views 4, draw sample, antithetic True")


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        (("methods", "dss"), {"lambda_", "delta", "threshold", "temperature", "alpha", "parts", "views"}, set()),
        (("methods", "source"), set(), {"temperature"}),
        (("datasets", "imagenet_c"), {"preprocessing", "list", "severity"}, {"jpeg"}),
        (("protocols", "recurring"), {"kind", "rounds", "order"}, {"shares"}),
    ],
)
def test_the_settings_of_one_entry(words, some, none):
    fields = {row["field"] for row in listed(*words)}
    assert some <= fields
    assert not none & fields


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("method",), "There is no list of 'method'. Did you mean 'methods'?"),
        (("methods", "dsss"), "There is no method 'dsss'. Did you mean 'dss'?"),
        (("datasets", "imagenet-c"), "There is no data set 'imagenet-c'. Did you mean 'imagenet_c'?"),
        (("models", "resnet18"), "A model has no settings to list. Leave out 'resnet18'."),
    ],
)
def test_mistakes(words, text):
    made = CliRunner().invoke(app, ["list", *words])
    assert made.exit_code == 2
    assert text in made.output


def test_presets_say_which_is_taken():
    told = CliRunner().invoke(app, ["list", "methods", "dss"]).output
    assert "auto: statistics auto" in told
    assert "auto if none is named, in experiments paper" in " ".join(told.split())
    told = CliRunner().invoke(app, ["list", "methods", "lame"]).output
    assert "paper if none is named" in " ".join(told.split())


def test_a_method_without_settings():
    made = CliRunner().invoke(app, ["list", "methods", "source"])
    assert (made.exit_code, made.output) == (0, "source has no settings.\n")
