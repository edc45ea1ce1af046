"""The cost of methods is measured as described."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch

import ctta
from benchmarks import memory, methods
from ctta.testing.networks import make_batch, make_network

LABELS = ("TENT", "EATA", "DSS", *methods.DSS_VARIANTS, methods.REFERENCE)


@pytest.fixture(scope="module")
def measured() -> dict:
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    made = methods.subjects(network, x, 3)
    return methods.measure({label: made[label] for label in LABELS}, network, x, rounds=1, views=3, patience=0)


def test_rows_count_passes_and_take_ratios(measured: dict):
    rows = {row["label"]: row for row in measured["rows"]}
    assert list(rows) == list(LABELS)
    passes = {label: (row["forwards"], row["backwards"]) for label, row in rows.items()}
    # DSS: student, source and 3 augmentations; lean: student, 4 augmentations and the un-augmented batch. Public code
    # runs the un-augmented batch always.
    expected = [(1, 1), (1, 1), *[(5, 1)] * 4, *[(6, 1)] * 5]
    assert passes == dict(zip(LABELS, expected, strict=True))
    for label, row in rows.items():
        assert row["forward_ratio"] == pytest.approx(row["seconds"] / measured["plain_seconds"])
        assert row["images_per_second"] == pytest.approx(8 / row["seconds"])
        for share in ("passes_ratio", "views_share", "updates_share", "reference_ratio"):
            assert (row[share] is None) == (label in ("TENT", "EATA")), (label, share)
    dss = rows["DSS"]
    assert dss["passes_ratio"] == pytest.approx(dss["forward_ratio"] / 4)
    assert dss["reference_ratio"] == pytest.approx(dss["seconds"] / rows[methods.REFERENCE]["seconds"])
    assert 0 < dss["updates_share"] < 1
    assert json.loads(json.dumps(measured)) == measured


def test_every_method_is_a_subject():
    network, x = make_network("pointnet_bn").eval(), make_batch("pointnet_bn", 8, 0)
    made = methods.subjects(network, x, 1)
    assert {name for name, _ in made.values()} == set(ctta.METHODS)
    assert methods.REFERENCE not in made  # it augments images only


def test_stopwatch_shares_by_hand(monkeypatch: pytest.MonkeyPatch):
    ticks = iter([0.0, 1.0, 5.0, 9.0])
    monkeypatch.setattr(methods.time, "perf_counter", lambda: next(ticks))
    watch = methods.Stopwatch()
    watch.timed("views", int)()  # one second
    watch.timed("teacher", int)()  # four
    assert watch.share("views", "teacher") == 0.25
    assert watch.share("updates", "teacher") is None


@pytest.mark.parametrize(
    "execution",
    [ctta.Execution(views_per_pass=3, parallel_passes=1), ctta.Execution(views_per_pass=4, parallel_passes=2)],
)
def test_the_stopwatch_changes_no_prediction(execution):
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    watch = methods.Stopwatch()
    plain, watched = (
        ctta.DSS(network, preset="cifar10", augmentation_threshold=1.0, views=6, execution=execution) for _ in range(2)
    )
    memory.around_passes(watched.teacher, partial(watch.timed, "teacher"))
    for _ in range(2):
        assert torch.equal(watched(x), plain(x))
    assert watch.seconds["teacher"] > 0


def test_goals_compare_with_their_limits(measured: dict):
    rows = [{**row, "passes_ratio": 0.7, "views_share": 0.15} for row in measured["rows"]]
    met = {goal["text"]: goal["met"] for goal in methods.goals(rows)}
    assert met["float32, time over 33 plain passes"]
    assert not met["bfloat16, time over 33 plain passes"]
    assert met["augmentation over the teacher's passes"]
