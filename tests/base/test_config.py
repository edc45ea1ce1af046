"""Configurations: types, ranges and former names are checked, and all mistakes are reported together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from ctta.base.config import Config, section, setting
from ctta.base.errors import ConfigError


@dataclass(frozen=True)
class Example(Config):
    """A configuration with a field of every kind."""

    rate: float = setting(0.1, "A rate.", symbol="eta", low=0.0, high=1.0)
    scale: float = setting(1.0, "A scale.", low=0.0, open_low=True)
    count: int = setting(3, "A count.", low=1)
    flag: bool = setting(False, "A flag.")
    kind: Literal["one", "two"] = setting("one", "A kind.", was="sort", renamed={"first": "one"})
    limit: int | None = setting(None, "A limit.")
    names: tuple[str, ...] = setting((), "Names.")


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("rate", "fast", "a number, at least 0 and at most 1"),
        ("rate", 1.5, "a number, at least 0 and at most 1"),
        ("rate", -0.5, "a number, at least 0 and at most 1"),
        ("rate", float("nan"), "a number, at least 0 and at most 1"),
        ("rate", True, "a number, at least 0 and at most 1"),
        ("scale", 0, "a number, more than 0"),
        ("count", 2.0, "a whole number, at least 1"),
        ("count", True, "a whole number, at least 1"),
        ("flag", 1, "true or false"),
        ("kind", "three", "'one' or 'two'"),
        ("limit", "none", "a whole number or none"),
        ("names", ["a", 1], "a list, each entry a text"),
    ],
)
def test_a_wrong_value_is_refused(name, value, accepted):
    with pytest.raises(ConfigError) as caught:
        Example.make({name: value})
    got = tuple(value) if isinstance(value, list) else value
    assert str(caught.value) == f"The field {name!r} of Example must be {accepted}. Got {got!r} instead."


def test_right_values_are_kept():
    values = {"rate": 1, "scale": 0.5, "count": 1, "flag": True, "kind": "two", "limit": 7, "names": ("a", "b")}
    assert Example.make({**values, "names": ["a", "b"]}).asdict() == values
    assert Example().replace(rate=0.0).asdict() == {**Example().asdict(), "rate": 0.0}


def test_all_mistakes_come_together():
    with pytest.raises(ConfigError) as caught:
        Example.make({"rates": 0.5, "count": 0, "flag": "yes"})
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("Example has no field 'rates'. Did you mean 'rate'?")
    assert ["'count'" in lines[1], "'flag'" in lines[2], len(lines)] == [True, True, 3]
    problems: list[str] = []
    assert section(Example, "method", {"count": 0, "flag": "yes"}, problems) is None
    assert problems == [f"method: {line}" for line in lines[1:]]
    assert section(Example, "method", 3, problems) is None
    assert problems[2] == "method must be a mapping. Got 3."


def test_former_words_are_answered_with_those_of_today():
    with pytest.raises(ConfigError, match=r"^The field 'sort' of Example is now called 'kind'\.$"):
        Example.make({"sort": "one"})
    with pytest.raises(ConfigError, match=r"must be 'one' or 'two'\. 'first' is now called 'one'.$"):
        Example(kind="first")


def test_a_description_has_a_row_per_field():
    rows = {name: rest for name, *rest in Example.describe()}
    assert tuple(rows) == Example.fields()
    assert rows["rate"] == ["a number, at least 0 and at most 1", 0.1, "A rate. (eta in the paper)"]
