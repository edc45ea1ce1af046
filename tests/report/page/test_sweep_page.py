"""The page of a sweep."""

from __future__ import annotations

from ctta.records.sweep_folder import Head
from ctta.report.metrics import over_seeds
from ctta.report.page import sweep_page
from ctta.report.tables.sweep import SweepError, SweepErrors, average


def test_tables_links_and_axes() -> None:
    axes = {"data.batch": [5, 9], "protocol": [{"kind": "recurring", "rounds": 3}, "<b>"]}
    points = {"b5": {"data.batch": 5, "protocol": axes["protocol"][0]}, "b9": {"data.batch": 9, "protocol": "<b>"}}
    lines = tuple(
        SweepError(label, label.lower(), points[slug], over_seeds([error]), 1, status, (), slug)
        for slug, label, error, status in (("b5", "A", 2.0, ""), ("b5", "B", 1.0, ""), ("b9", "A", 3.0, "waiting"))
    )
    page = sweep_page.make(SweepErrors(Head("mine", axes, ("protocol",), points), lines, average(lines, ("protocol",))))
    assert "<h2>Averages</h2>" in page
    assert page.index("<h2>Averages</h2>") < page.index("<h2>Points</h2>")
    assert page.count('href="points/') == 2
    assert page.count('<td class="best">1.0</td>') == 2, "at its point, and as its own average"
    assert "3.0 [1]" in page
    assert "[1] waiting." in page
    assert "protocol (averaged)" in page
    assert "recurring, rounds 3 · &lt;b&gt;" in page
    assert "<script" not in page
