"""The paper's numbers, against what is printed there."""

from __future__ import annotations

import pytest

from ctta import paper
from ctta.data.corruptions import CLOUD_NAMES, PAPER
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS
from ctta.methods import METHODS
from ctta.models import MODELS


def rows(name):
    return {row.title: row for row in paper.table(name).rows}


def test_every_table_says_what_it_is_of():
    titles = {dataset.named(Data()) for dataset in DATASETS.values()}
    for name in paper.TABLES:
        table = paper.table(name)
        assert table.rows
        assert table.setup.dataset in titles
        assert table.setup.model in MODELS
        for row in table.rows:
            kind = METHODS[row.method]
            kind.config_type.make({**kind.preset_fields(table.setup.preset), **row.fields})
            assert tuple(row.errors) in ((), PAPER, CLOUD_NAMES), "in the stream's order"


def test_a_printed_mean_that_is_wrong_is_recomputed():
    assert (rows("table3")["Source"].mean, rows("table3")["Source"].printed) == (82.4, 77.2)
    assert (rows("table3")["BN Adapt"].mean, rows("table3")["BN Adapt"].printed) == (72.1, 66.2)
    assert (rows("table10")["DSS"].mean, rows("table10")["DSS"].printed) == (33.3, 33.2)
    wrong = [(name, row.title) for name in paper.TABLES for row in paper.table(name).rows if row.printed is not None]
    assert wrong == [("table3", "Source"), ("table3", "BN Adapt"), ("table10", "DSS")], "and no other is"
    assert paper.table("table10").notes() == ("The paper prints a mean of 33.2 for DSS; its own columns average 33.3.",)


def test_domains_that_cannot_be_made_alike_are_left_out_of_the_mean():
    # Table 5, DSS: the thirteen domains before occlusion (89.8) and lidar (90.0) sum to 466.2.
    dss = rows("table5")["DSS"]
    assert sum(dss.errors.values()) == pytest.approx(466.2 + 89.8 + 90.0)
    assert dss.mean == 35.9
    assert "occlusion and lidar" in paper.table("table5").notes()[0]


def test_ablations_are_settings_of_dss():
    assert rows("table6_imagenetc")["DSS DT+PL"].mean == 64.8
    assert rows("table7_imagenetc")["DSS fixed+PL"].mean == 77.4
    assert rows("table7_cifar100c")["DSS fixed+PL"].fields == {"parts": "dt+pl", "threshold": 0.2}
    assert rows("table8_cifar100c")["DSS Tp 1"].fields == {"temperature": 1.0}
    assert (rows("table4")["CoTTA"].mean, rows("table4")["CoTTA"].sd) == (63.0, 1.8)


def test_the_ten_orders():
    orders = paper.orders()
    assert list(orders) == [f"paper-{number}" for number in range(1, 11)]
    assert len(set(orders.values())) == 10
    for order in orders.values():
        assert sorted(order) == sorted(PAPER)
    assert orders["paper-7"][:3] == ("frost", "impulse_noise", "jpeg_compression")
