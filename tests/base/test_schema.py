"""JSON as dataclasses: what does not fit is refused, with its place."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ctta import StateError
from ctta.base.schema import Natural, parse_json, read_json


@dataclass(frozen=True)
class Point:
    x: float
    count: Natural = 0
    name: str | None = None
    ends: tuple[int, ...] = ()


def test_what_fits_is_made():
    made = parse_json(b'{"x": 1, "count": 2, "name": null, "ends": [1, 2]}', Point)
    assert made == Point(1, 2, None, (1, 2))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"{", "it is not JSON"),
        (b"[]", "it must be a mapping"),
        (b"{}", "'x' is missing"),
        (b'{"x": 1, "y": 2}', "'y' is unknown"),
        (b'{"x": true}', "x must be a number, and is True"),
        (b'{"x": 1, "count": -1}', "count must be at least 0, and is -1"),
        (b'{"x": 1, "count": 1.0}', "count must be a whole number"),
        (b'{"x": 1, "count": 10000000000000000000}', "count must be a whole number"),
        (b'{"x": 1, "ends": [1, "a"]}', r"ends\[1\] must be a whole number, and is 'a'"),
        (b'{"x": ' + b"[" * 60 + b"]" * 60 + b"}", "more than 40 levels"),
    ],
)
def test_what_does_not_fit_is_refused(content, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        parse_json(content, Point)
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(StateError, match=rf"p\.json is damaged: .*({words}).*Remove it\."):
        read_json(tmp_path / "p.json", Point, "Remove it.")
