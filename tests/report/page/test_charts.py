"""Charts as SVG."""

from __future__ import annotations

import pytest

from ctta.report.metrics import Split
from ctta.report.page import charts

METHODS = [("Source", "source"), ("BN Adapt", "bn_adapt"), ("TENT", "tent"), ("DSS", "dss")]
ROWS = [*METHODS, ("DSS fast", "dss"), ("My", "my.py:My")]


def test_a_method_looks_the_same_on_every_page() -> None:
    whole = charts.styles(ROWS)
    for rows in (ROWS[::-1], METHODS[2:], [METHODS[3], METHODS[0]]):
        assert charts.styles(rows) == {label: whole[label] for label, _ in rows}
    assert len({(style.colour, style.marker) for style in whole.values()}) == len(ROWS)
    assert len(set(charts.LOOKS.values())) == len(charts.LOOKS)


def test_rows_of_one_method_differ_as_long_as_there_are_looks() -> None:
    rows = [(f"views {number}", "dss") for number in range(40)]
    found = charts.styles(rows)
    assert len(set(found.values())) == 40
    assert charts.styles(rows[::-1]) == found
    assert len({style.colour for style in list(charts.styles(rows[:8]).values())}) == 8, "colours first"


def test_only_the_best_is_bold() -> None:
    assert [label for label, style in charts.styles(ROWS, {"TENT"}).items() if "best" in style.name] == ["TENT"]


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        ([100, 100, 100], [84, 100, 116]),
        ([50, 100], [50, 100]),
        ([100, 50, 104], [94, 50, 110]),
        ([0, 0, 200], [0, 16, 200]),
        ([199, 200], [184, 200]),
    ],
)
def test_labels_stay_as_near_to_their_lines_as_they_can(places: list[float], wanted: list[float]) -> None:
    assert charts.spread_out(places, 16, 0, 200) == pytest.approx(wanted)


def test_labels_without_room_are_closer() -> None:
    assert charts.spread_out([5] * 11, 16, 0, 100) == pytest.approx(list(range(0, 101, 10)))


@pytest.mark.parametrize(("low", "high", "wanted"), [(-3.2, 1, [-4, -3, -2, -1, 0, 1]), (0, 5, [0, 1, 2, 3, 4, 5])])
def test_ticks_include_zero_and_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert charts.nice_ticks(low, high) == wanted


@pytest.mark.parametrize("low", [3, 17, 31, 44, 58, 63, 79, 95])
def test_percent_axes_end_at_a_hundred(low: int) -> None:
    pair = ("fog", Split(50.0, 100.0, low))
    (style,) = charts.styles([("DSS", "dss")]).values()
    svg = str(charts.pair_chart("p", "t", [pair], style, axis="accuracy, %"))
    assert ">100</text>" in svg
    assert ">110</text>" not in svg
    assert ">120</text>" not in svg
