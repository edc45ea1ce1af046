"""The race: error and time of all methods in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import methods, race

EXPERIMENT = Path(__file__).parents[2] / "experiments/race_cifar10.yaml"


def test_the_race_has_error_and_time_of_all(tmp_path, small):
    arguments = [
        str(EXPERIMENT),
        *small,
        *("--set", "methods=[cotta, {method: dss, preset: cifar10+fast}]", "--views", "2"),
        *("--out", str(tmp_path / "race.json")),
    ]
    race.main(arguments)
    found = {row["label"]: row for row in json.loads((tmp_path / "race.json").read_text())["rows"]}
    assert list(found) == ["plain pass", methods.REFERENCE, "CoTTA", "DSS"]
    assert (found["plain pass"]["forward_ratio"], found[methods.REFERENCE]["ratio"]) == (1.0, 1.0)
    for row in found.values():
        assert row["error"] * 24 / 100 == pytest.approx(round(row["error"] * 24 / 100)), "of 24 predictions"
        assert row["seconds"] == pytest.approx(row["ratio"] * found[methods.REFERENCE]["seconds"])
    with pytest.raises(SystemExit, match="imagenet"):
        race.main([*arguments, "--set", "methods=[{method: dss, preset: imagenet}]"])


def test_times_may_be_compared_with_a_row_of_the_experiment(tmp_path, small):
    arguments = [str(EXPERIMENT), *small, "--set", "methods=[tent, shot]", "--out", str(tmp_path / "race.json")]
    race.main([*arguments, "--beside", "TENT"])
    found = {row["label"]: row for row in json.loads((tmp_path / "race.json").read_text())["rows"]}
    assert list(found) == ["plain pass", "TENT", "SHOT"]
    assert found["TENT"]["ratio"] == 1.0
    assert found["SHOT"]["seconds"] == pytest.approx(found["SHOT"]["ratio"] * found["TENT"]["seconds"])
    with pytest.raises(SystemExit, match=r"no row 'CoTTA' to compare times with\. Choose from plain pass, TENT, SHOT"):
        race.main([*arguments, "--beside", "CoTTA"])
