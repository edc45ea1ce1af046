"""Charts as SVG."""

from __future__ import annotations

import pytest

from ctta.report.metrics import Split
from ctta.report.page import charts


@pytest.mark.parametrize("low", [3, 17, 31, 44, 58, 63, 79, 95])
def test_percent_axes_end_at_a_hundred(low: int) -> None:
    pair = ("fog", Split(50.0, 100.0, low))
    (style,) = charts.styles([("dss", "DSS")]).values()
    svg = str(charts.pair_chart("p", "t", [pair], style, axis="accuracy, %"))
    assert ">100</text>" in svg
    assert ">110</text>" not in svg
    assert ">120</text>" not in svg
