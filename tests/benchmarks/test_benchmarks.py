"""The cost of methods is measured as said, and the reference CoTTA it is compared with is CoTTA."""

from __future__ import annotations

import csv
import json
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ctta
from benchmarks import curve, memory, methods, race, shares
from benchmarks.cost_chart import draw_chart, points
from benchmarks.reference_cotta import ReferenceCoTTA
from ctta.testing.networks import make_batch, make_network, make_stream

LABELS = ("TENT", "EATA", "DSS", *methods.DSS_VARIANTS, methods.REFERENCE)


@pytest.fixture(scope="module")
def measured() -> dict:
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    made = methods.subjects(network, x, 3)
    return methods.measure({label: made[label] for label in LABELS}, network, x, rounds=1, views=3, patience=0)


def test_reference_is_cotta_where_nothing_is_random():
    # Mirrored views, so that teacher and student differ from the start: else all gradients would be rounding errors.
    network, stream = make_network("image_bn").double(), [x.double() for x in make_stream("image_bn", 4)]
    confidence = [ctta.BNAdapt(network)(x).softmax(1).amax(1).mean().item() for x in stream]
    settings = {"lr": 1e-2, "ema": 0.9, "gate": sum(confidence) / 4, "restore": 0.0}
    ours = ctta.CoTTA(
        network,
        preset="cifar10",
        views=lambda x, random: x.flip(3),
        execution=ctta.Execution(channels_last=False),
        **settings,
    )
    reference = ReferenceCoTTA(network, views=2, view=lambda x: x.flip(3), **settings)
    opened = []
    for x in (stream[i] for i in (confidence.index(min(confidence)), 0, 1, 2, 3)):
        step = ours.step(x)
        torch.testing.assert_close(reference(x), step.logits, atol=1e-8, rtol=1e-8)
        opened.append(bool(step.info["views"]))
    assert opened[0]
    assert not all(opened)
    moved = (ours.student.head.weight - network.head.weight).abs().max().item()
    assert moved > 0.01  # it has learned


def test_reference_restores_the_share_it_says():
    network = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64 * 36, 10))
    reference = ReferenceCoTTA(network, views=1, restore=0.25)
    with torch.no_grad():
        for parameter in reference.student.parameters():
            parameter.add_(1)
    torch.manual_seed(0)
    reference.restore()
    pairs = zip(reference.student.parameters(), network.parameters(), strict=True)
    back = torch.cat([(one == other).flatten() for one, other in pairs])
    assert len(back) > 20_000
    assert back.float().mean().item() == pytest.approx(0.25, abs=0.02)


def test_reference_makes_every_view_even_behind_a_closed_gate():
    seen = []

    def view(x: Tensor) -> Tensor:
        seen.append(x)
        return x

    ReferenceCoTTA(make_network("image_bn"), views=5, gate=0.0, view=view)(make_batch("image_bn", 8, 0))
    assert len(seen) == 5


def test_rows_count_passes_and_take_ratios(measured: dict):
    rows = {row["label"]: row for row in measured["rows"]}
    assert list(rows) == list(LABELS)
    passes = {label: (row["forwards"], row["backwards"]) for label, row in rows.items()}
    # DSS: student, source and 3 views; lean: student, 4 views and the plain batch. Public code: the plain batch always.
    expected = [(1, 1), (1, 1), (5, 1), (5, 1), (5, 1), *[(6, 1)] * 6]
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
    assert methods.REFERENCE not in made  # it has views of images alone


def test_stopwatch_shares_by_hand(monkeypatch: pytest.MonkeyPatch):
    ticks = iter([0.0, 1.0, 5.0, 9.0])
    monkeypatch.setattr(methods.time, "perf_counter", lambda: next(ticks))
    watch = methods.Stopwatch()
    watch.timed("views", int)()  # one second
    watch.timed("teacher", int)()  # four
    assert watch.share("views", "teacher") == 0.25
    assert watch.share("updates", "teacher") is None


@pytest.mark.parametrize("execution", [ctta.Execution(chunk=3, lanes=1), ctta.Execution(chunk=4, lanes=2)])
def test_under_the_stopwatch_the_answers_are_the_same(execution):
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    watch = methods.Stopwatch()
    plain, watched = (ctta.DSS(network, preset="cifar10", gate=1.0, views=6, execution=execution) for _ in range(2))
    memory.around_passes(watched.teacher, partial(watch.timed, "teacher"))
    for _ in range(2):
        assert torch.equal(watched(x), plain(x))
    assert watch.seconds["teacher"] > 0


def test_goals_compare_with_their_limits(measured: dict):
    rows = [{**row, "passes_ratio": 0.7, "views_share": 0.15} for row in measured["rows"]]
    met = {goal["text"]: goal["met"] for goal in methods.goals(rows)}
    assert met["float32, time over 33 plain passes"]
    assert not met["bfloat16, time over 33 plain passes"]
    assert met["views over the teacher's passes"]


@pytest.mark.parametrize("lanes", [1, 2])
def test_memory_of_dss_is_the_sum_of_its_parts(lanes):
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    result = memory.measure(network, x, gate=1.0, execution=ctta.Execution(chunk=4, lanes=lanes))
    parts = result["parts"]
    assert parts["source weights"] == parts["student"] == parts["teacher"] == 1
    values = sum(parameter.numel() for parameter in network.parameters())
    counts = len(list(network.parameters()))
    assert parts["optimiser state"] == pytest.approx((2 * values + counts) * 4 / memory.network_bytes(network))
    assert parts["gradients"] == 0
    assert result["alive"] == pytest.approx(result["held"], rel=0.01)
    assert 2 <= result["views_at_once"] <= 4, "more than one, and no more than the chunk"
    assert result["views_in_a_pass"] * result["passes_at_once"] == 4


def test_counted_bytes_are_counted_once():
    x = torch.zeros(10, dtype=torch.float32)
    assert memory.tensor_bytes([x, x[2:], x.view(2, 5)]) == 40
    assert memory.tensor_bytes([x, x.clone()]) == 80


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
    paths = draw_chart(result, table, tmp_path)
    assert [path.name for path in paths] == ["cost_error.svg", "cost_error.png"]
    drawn = [path.read_bytes() for path in paths]
    assert drawn[0].decode().count("<!-- DSS, lean -->") == 1
    assert [path.read_bytes() for path in draw_chart(result, table, tmp_path)] == drawn, "no date, no chance"


def test_chart_refuses_another_table(tmp_path):
    table = tmp_path / "other.csv"
    table.write_text("preset,corruption\ncifar,fog\n")
    with pytest.raises(SystemExit, match="no columns 'label' and 'mean'"):
        points([], table)


def test_the_curve_puts_errors_beside_times(tmp_path, monkeypatch):
    network, x = make_network("image_bn").eval(), make_batch("image_bn", 8, 0)
    monkeypatch.setattr(curve, "random_model", lambda name: network)
    monkeypatch.setattr(curve, "random_batch", lambda shape: x)
    table = tmp_path / "errors.csv"
    table.write_text("label,mean,mean sd\nlean 2,21.5,0.20\npaper 3,22.5,0.10\n")
    curves = (
        curve.Curve("a network", "any", table, rounds=1),
        curve.Curve("nobody ran it", "any", tmp_path / "none.csv", rounds=1),
    )
    curve.main(out=tmp_path, curves=curves)
    found = json.loads((tmp_path / "lean_curve.json").read_text())["curves"]
    assert list(found) == ["a network"]
    lean, paper = found["a network"]
    assert (lean["kind"], lean["error"], lean["deviation"]) == ("lean", 21.5, 0.2)
    assert (paper["kind"], paper["error"]) == ("paper", 22.5)
    assert lean["forward_ratio"] > 0
    assert paper["reference_ratio"] > 0
    assert (tmp_path / "lean_curve.png").stat().st_size > 10_000


@pytest.fixture
def small(tmp_path) -> list[str]:
    """What makes an experiment on CIFAR-10 small: two domains of two batches of noise, random weights."""
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "clean.npz",
        images=generator.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        labels=generator.integers(0, 10, 12),
    )
    torch.save(methods.random_model("cifar_resnet20").state_dict(), tmp_path / "weights.pt")
    changes = {
        "data.path": tmp_path / "clean.npz",
        "model.weights": tmp_path / "weights.pt",
        "data.domains": "[fog, contrast]",
        "data.first": 0,
        "data.images": 12,
        "data.batch": 6,
    }
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


def test_rules_for_the_plain_share_are_asked_on_the_same_answers(tmp_path, small):
    out = tmp_path / "shares.csv"
    for name in ("one", "other"):
        shares.main(["experiments/share_rule.yaml", *small, "--name", name, "--out", str(out)])
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * len(shares.RULES)
    half = len(rows) // 2
    assert [row | {"stream": ""} for row in rows[:half]] == [row | {"stream": ""} for row in rows[half:]]
    found = {(row["rule"], row["views"]): row for row in rows}
    assert float(found["weighed", "8"]["mean"]) == pytest.approx(
        (float(found["weighed", "8"]["fog"]) + float(found["weighed", "8"]["contrast"])) / 2, abs=0.06
    )
    assert found["always 1", "4"] | {"views": ""} == found["always 1", "8"] | {"views": ""}, "views count for nothing"


def test_a_rule_weighs_the_plain_batch_against_its_views():
    views, plain = torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]]]), torch.tensor([[0.0, 4.0]])
    assert shares.answer(views, plain, lambda *_: torch.tensor(0.25)).tolist() == [[0.75, 1.0]]
    seen = []
    shares.answer(views, plain, lambda one, other: seen.append((one, other)) or torch.tensor(0.0))
    sure = torch.tensor([4.0, 2.0, 0.0]).sigmoid()
    assert seen == [(pytest.approx(sure[0]), pytest.approx(sure[1:].mean()))]


def test_the_race_has_error_and_time_of_all(tmp_path, small):
    arguments = [
        "experiments/race_cifar10.yaml",
        *small,
        *("--set", "methods=[cotta, {method: dss, preset: cifar10+lean}]", "--views", "2"),
        *("--out", str(tmp_path / "race.json")),
    ]
    race.main(arguments)
    found = {row["label"]: row for row in json.loads((tmp_path / "race.json").read_text())["rows"]}
    assert list(found) == ["plain pass", methods.REFERENCE, "CoTTA", "DSS"]
    assert (found["plain pass"]["forward_ratio"], found[methods.REFERENCE]["reference_ratio"]) == (1.0, 1.0)
    for row in found.values():
        assert row["error"] * 24 / 100 == pytest.approx(round(row["error"] * 24 / 100)), "of 24 answers"
        assert row["seconds"] == pytest.approx(row["reference_ratio"] * found[methods.REFERENCE]["seconds"])
    with pytest.raises(SystemExit, match="imagenet"):
        race.main([*arguments, "--set", "methods=[{method: dss, preset: imagenet}]"])
