"""Names and constants of the image corruptions."""

from __future__ import annotations

from ctta.data.corruptions import EXTRA, NAMES, PAPER, PRESETS, SEVERITIES
from ctta.data.corruptions.constants import CONSTANTS, preset_for


def test_the_names_are_the_fifteen_and_the_four():
    assert len(PAPER) == 15
    assert len(EXTRA) == 4
    assert NAMES == PAPER + EXTRA


def test_every_preset_has_five_severities_per_corruption():
    assert tuple(CONSTANTS) == PRESETS
    for table in CONSTANTS.values():
        assert tuple(table) == NAMES
        assert all(len(constants) == len(SEVERITIES) for constants in table.values())


def test_the_constants_go_by_the_longer_side():
    assert [preset_for(*size) for size in ((32, 32), (64, 64), (65, 40), (40, 65), (224, 224))] == [
        "cifar",
        "cifar",
        *["imagenet"] * 3,
    ]
