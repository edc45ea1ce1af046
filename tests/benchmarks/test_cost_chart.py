"""The chart of cost against error."""

from __future__ import annotations

import pytest

from benchmarks import methods
from benchmarks.cost_chart import draw_chart, points


def test_chart_pairs_labels_and_is_written(tmp_path):
    table = tmp_path / "errors.csv"
    table.write_text("label,method,mean\nCoTTA,cotta,25.5\nDSS lean,dss,25.4\nDSS (8 views),dss,25.6\nTENT,tent,\n")
    costs = {"CoTTA": 36.0, "DSS": 36.0, "DSS, lean": 10.0, "TENT": 2.0, methods.REFERENCE: 85.0}
    rows = [{"label": label, "forward_ratio": cost} for label, cost in costs.items()]
    assert points(rows, table) == {
        "CoTTA": (36.0, 25.5),
        "DSS, lean": (10.0, 25.4),
        methods.REFERENCE: (85.0, 25.5),
    }
    result = {"title": "ResNet-20", "shape": [200], "rows": rows}
    paths = draw_chart(result, table, tmp_path / "bench.json")
    assert [path.name for path in paths] == ["bench.svg", "bench.png"]
    drawn = [path.read_bytes() for path in paths]
    assert drawn[0].decode().count("<!-- DSS, lean -->") == 1
    assert [path.read_bytes() for path in draw_chart(result, table, tmp_path / "bench.json")] == drawn, (
        "the same figure gives the same files"
    )


def test_chart_refuses_another_table(tmp_path):
    table = tmp_path / "other.csv"
    table.write_text("preset,corruption\ncifar,fog\n")
    with pytest.raises(SystemExit, match="no columns 'label' and 'mean'"):
        points([], table)
