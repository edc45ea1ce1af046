"""The folder of a sweep, and how values along an axis are named."""

from __future__ import annotations

import pytest

from ctta import StateError
from ctta.records.run_folder import Run
from ctta.records.sweep_folder import SHORT, Head, SweepFolder, heads, shown, text

HEAD = Head(
    "lr", {"method.lr": [0.1, 0.2]}, ("method.lr",), {"lr-0.1": {"method.lr": 0.1}, "lr-0.2": {"method.lr": 0.2}}
)


def test_the_head_comes_back_and_points_are_those_that_have_begun(tmp_path):
    folder = SweepFolder(tmp_path / "new")
    assert not folder.is_one()
    folder.write(HEAD)
    assert folder.is_one()
    assert folder.head() == HEAD
    assert folder.begun(folder.head()) == {}
    folder.point("lr-0.2").write_run(Run("a", "1f", {}, {}, (), {}))
    assert list(folder.begun(folder.head())) == ["lr-0.2"]


def test_a_single_run_is_not_overwritten(tmp_path):
    SweepFolder(tmp_path).point("a")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StateError, match="holds a single run"):
        SweepFolder(tmp_path).write(HEAD)


def test_values_in_words():
    assert text({"kind": "recurring", "rounds": 3}) == "recurring, rounds 3"
    assert (text("fog"), text([1, 2]), text(None)) == ("fog", "[1, 2]", "null")
    long = "x" * (SHORT + 1)
    assert shown(["a", long], long) == "#2"
    assert shown(["a", long], "a") == "a"
    assert heads(["data.batch", "method.lr"]) == {"data.batch": "batch", "method.lr": "lr"}
    assert heads(["data.seed", "source.seed"]) == {"data.seed": "data.seed", "source.seed": "source.seed"}
