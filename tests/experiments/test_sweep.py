"""Grids: their points, their folders, and all that can be wrong with them."""

from __future__ import annotations

import pytest

from ctta import ConfigError
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep

BASE = {
    "data": {"domains": ["fog"], "images": 20, "batch": 10},
    "model": {"name": None, "factory": "tiny:network"},
    "methods": ["source", {"method": "dss", "views": 2}],
}


def test_the_points_are_the_product_of_the_axes():
    grid = {"method.temperature": [0.2, 1.0], "data.batch": [5, 10], "protocol.order": [0, 1, 2]}
    made = sweep.make(
        BASE | {"protocol": {"kind": "continual"}, "grid": grid, "average_over": ["protocol.order"]}, "mine"
    )
    assert len(made.experiments) == 12
    assert made.head.over == ("protocol.order",)
    assert list(made.head.points)[:2] == ["temperature-0.2_batch-5_order-0", "temperature-0.2_batch-5_order-1"]
    one = made.experiments["temperature-1.0_batch-10_order-2"]
    assert (one.data.batch, one.protocol.order, one.methods[1].fields["temperature"]) == (10, 2, 1.0)
    assert "temperature" not in one.methods[0].fields, "source has no such field"
    assert one.name == "mine: temperature 1.0, batch 10, order 2"
    assert len({one.identity() for one in made.experiments.values()}) == 12


def test_whole_sections_are_axes_too():
    grid = {"method.views": [3], "methods": ["dss", ["source", "tent"]], "seeds": [0, [1, 2]]}
    made = list(sweep.make(BASE | {"grid": grid}).experiments.values())
    assert [[method.method for method in one.methods] for one in made[::2]] == [["dss"], ["source", "tent"]]
    assert [one.seeds for one in made[:2]] == [(0,), (1, 2)]
    assert made[0].methods[0].fields == {"views": 3}, "fields are set in the methods of the point"


def test_long_values_get_short_folders_that_last():
    orders = [["fog", "contrast", "brightness"], ["contrast", "fog", "brightness"], ["brightness", "fog", "contrast"]]
    first = sweep.make(BASE | {"grid": {"data.domains": orders[:2]}})
    more = sweep.make(BASE | {"grid": {"data.domains": orders[::-1]}})
    assert set(first.experiments) < set(more.experiments), "a grid that grows keeps its folders"
    assert all(len(slug) < 50 and "/" not in slug and " " not in slug for slug in more.experiments)
    assert [one.name for one in first.experiments.values()] == ["sweep: domains #1", "sweep: domains #2"]


def test_the_folders_of_two_fields_with_one_name_differ():
    values = BASE | {"source": {"first": 9000}, "grid": {"data.images": [10], "source.images": [20]}}
    assert list(sweep.make(values).experiments) == ["data.images-10_source.images-20"]


def test_all_mistakes_of_all_points_are_listed_each_once():
    values = {
        "data": {"sverity": 3},
        "methods": ["dsss", "dss"],
        "grid": {
            "data.batch": [10, -1, 10],
            "method.temprature": [0.1],
            "dat.images": [1],
            "seeds": 3,
            "model.weights": [],
        },
        "average_over": ["data.batch", "data.bach"],
    }
    with pytest.raises(ConfigError) as caught:
        sweep.make(values)
    lines = str(caught.value).splitlines()
    wanted = [
        "grid: data.batch has 10 more than once",
        "there is no section 'dat'. Did you mean 'data'?",
        "grid: seeds must have a list of values, at least one. Got 3.",
        "grid: model.weights must have a list of values, at least one. Got [].",
        "average_over: no axis is called 'data.bach'. Did you mean 'data.batch'?",
        "Did you mean 'severity'?",
        "The field 'batch' of Data must be a whole number, at least 1. Got -1 instead.",
        "Did you mean 'dss'?",
        "no method here has a field 'temprature'. Did you mean 'temperature'?",
    ]
    for text in wanted:
        assert sum(text in line for line in lines) == 1, text
    assert len(lines) == len(wanted)


@pytest.mark.parametrize("grid", [None, {}, [1], "data.batch"])
def test_a_grid_is_a_mapping(grid):
    with pytest.raises(ConfigError, match="grid must be a mapping of settings"):
        sweep.make(BASE | {"grid": grid})


def test_sections_that_cannot_be_used_are_mistakes_and_no_crash():
    values = {"data": 5, "methods": 7, "grid": {"data.batch": [1], "method.lr": [0.1], "source.first": [3]}}
    with pytest.raises(ConfigError) as caught:
        sweep.make(values | {"source": "all"})
    assert all(f"{name} must be a" in str(caught.value) for name in ("data", "methods", "source"))


def test_one_experiment_is_no_sweep():
    with pytest.raises(ConfigError, match="this is a sweep of experiments"):
        experiments.make(BASE | {"grid": {"data.batch": [1]}})
    with pytest.raises(ConfigError, match="there is no grid"):
        experiments.make(BASE | {"average_over": ["data.batch"]})
    with pytest.raises(ConfigError, match="Did you mean 'grid'"):
        experiments.make(BASE | {"gird": {}})


def test_the_former_word_is_named():
    with pytest.raises(ConfigError, match=r"^There is no section 'over'\. It is now called 'average_over'\.$"):
        sweep.make(BASE | {"grid": {"data.batch": [1]}, "over": ["data.batch"]})
