"""Protocols: small streams worked by hand, each sample as often as it should be, the same each time, from any batch."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from ctta import ConfigError, InputError
from ctta.data.combine import places
from ctta.data.corruptions import corrupt
from ctta.data.dataset import Data, DataSet
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.protocols import KINDS, PLAIN, Protocol
from ctta.data.stream import Batch, Domain, Stream, to_tensor
from ctta.experiments import experiment as experiments
from ctta.experiments.sections import override

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "label_shift": {"ratio": 4.0},
    "segments": {"longest": 2},
    "recurring": {"rounds": 3},
    "bursts": {"length": 2},
    "dead_sensor": {"every": 2},
    "poisoned": {"share": 0.5},
}
ALL = [KINDS[kind].make(SETTINGS.get(kind, {})) for kind in KINDS]
RANDOM = [KINDS[kind].make({"order": 4}) for kind in ("continual", "gradual", "recurring")]


def grey(place: int, name: str, severity: int, labels: list[int]) -> Domain:
    """Return a domain whose sample i is an image of one grey value that tells domain and row."""

    def read(rows):
        return np.stack([np.full((1, 1, 3), 10 * place + row, np.uint8) for row in rows])

    return Domain(name, severity, np.array(labels), read, lambda samples, rows: samples + np.uint8(100 * severity))


LABELS = [2, 0, 1, 0, 2, 0]
NAMES = ("a", "b", "c")


def numbered(holds: str = "clean", labels: list[int] = LABELS) -> DataSet:
    def opened(data, pairs):
        first = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in pairs))}
        return Stream(tuple(grey(first[name], name, severity, labels) for name, severity in pairs), data.batch)

    return DataSet("Numbered", "", opened, needs_path=False, domains={"paper": NAMES}, holds=holds)


def arrange(kind: str, batch: int = 2, severity: int = 5, **settings) -> Stream:
    return KINDS[kind].make(settings).arrange(numbered(), Data(batch=batch, severity=severity))


def shown(stream: Stream) -> list[int]:
    """The grey values, in order."""
    return [value for batch in stream for value in greys(batch)]


def greys(batch: Batch) -> list[int]:
    return [int(value) for value in (batch.x[:, 0, 0, 0] * 255).round()]


def segments(stream: Stream) -> list[tuple[str, int]]:
    return [(domain.name, domain.severity) for domain in stream.domains]


def test_continual_by_hand():
    assert shown(arrange("continual")) == [*range(6), *range(10, 16), *range(20, 26)]
    orders = {tuple(name for name, _ in segments(arrange("continual", order=n))) for n in range(40)}
    assert len(orders) == 6, "every order of three comes up"
    assert arrange("continual", order=3).domains[0].name == NAMES[places(3, 3)[0]]


def test_gradual_by_hand():
    stream = arrange("gradual")
    assert segments(stream)[:10] == [("a", s) for s in (1, 2, 3, 4, 5, 4, 3, 2, 1)] + [("b", 1)]
    assert len(stream.domains) == 27
    assert (
        shown(arrange("gradual", severities=[2, 4]))
        == [0, 1, 2, 3, 4, 5] * 2 + [*range(10, 16)] * 2 + [*range(20, 26)] * 2
    )


def test_mixed_by_hand():
    stream = arrange("mixed", batch=4)
    assert segments(stream) == [("mixed", 5)]
    values = shown(stream)
    assert values != sorted(values)
    assert sorted(values) == [*range(6), *range(10, 16), *range(20, 26)]
    batches = list(stream)
    assert {batch.domain for batch in batches} == {"mixed"}
    assert [batch.first for batch in batches] == [True, False, False, False, False]
    labels = [int(label) for batch in batches for label in batch.y]
    assert labels == [LABELS[value % 10] for value in values], "labels stay with their samples"
    assert stream.domains[0].labels.tolist() == labels
    assert shown(arrange("mixed", batch=4, seed=1)) != values
    assert any(len({value // 10 for value in values[start : start + 4]}) == 3 for start in range(0, 18, 4))


def test_sorted_by_hand():
    stream = arrange("sorted", batch=6)
    assert shown(stream)[:6] == [1, 3, 5, 2, 0, 4]  # labels 0 0 0 1 2 2
    assert next(iter(stream)).y.tolist() == [0, 0, 0, 1, 2, 2]


def test_small_concentrations_make_bursts():
    labels = np.random.default_rng(0).integers(0, 10, 1000).tolist()

    def classes_per_batch(concentration: float) -> float:
        stream = (
            KINDS["dirichlet"].make({"concentration": concentration}).arrange(numbered(labels=labels), Data(batch=50))
        )
        parts = np.array_split(stream.domains[1].labels, 20)
        return float(np.mean([len(np.unique(part)) for part in parts]))

    assert classes_per_batch(0.01) < 4
    assert classes_per_batch(1000.0) > 9.5


def test_bursts_by_hand():
    stream = arrange("bursts", batch=6, length=2)
    for place, domain in enumerate(stream.domains):
        values = [value - 10 * place for value in shown(stream)[6 * place : 6 * place + 6]]
        assert sorted([values[0:2], values[2:4], values[4:6]]) == [[0, 4], [1, 3], [5, 2]]  # labels 2 2, 0 0 and 0 1
        assert domain.labels.tolist() == [LABELS[value] for value in values]
    orders = {tuple(shown(arrange("bursts", length=2, seed=seed))[:6]) for seed in range(40)}
    assert len(orders) == 6, "every order of three comes up"
    shuffle = shown(arrange("bursts", length=1))
    assert shuffle[:6] != [value - 10 for value in shuffle[6:12]]
    assert sorted(shuffle) == [*range(6), *range(10, 16), *range(20, 26)]
    assert shown(arrange("bursts", length=6)) == shown(arrange("bursts", length=99)) == shown(arrange("sorted"))


def test_one_class_by_hand():
    stream = arrange("one_class", repeats=2)
    assert [domain.name for domain in stream.domains] == ["a", "b", "c", "a", "b", "c"]
    values = shown(stream)
    assert values[:18] == [1, 3, 5, 1, 3, 5, 11, 13, 15, 11, 13, 15, 21, 23, 25, 21, 23, 25]
    assert [domain.labels.tolist() for domain in stream.domains[:3]] == [[0] * 6] * 3
    assert sorted(values[18:]) == [*range(6), *range(10, 16), *range(20, 26)] != values[18:]
    assert shown(arrange("one_class", repeats=2, seed=1))[18:] != values[18:]
    assert shown(arrange("one_class", label=2, repeats=1))[:4] == [0, 4, 10, 14]
    with pytest.raises(InputError, match="No sample of a has the label 3"):
        arrange("one_class", label=3)


def batches(stream: Stream) -> list[list[int | None]]:
    """The grey values, none if a sample has no label."""
    return [
        [value if label >= 0 else None for value, label in zip(greys(batch), batch.y.tolist(), strict=True)]
        for batch in stream
    ]


def test_dead_sensor_by_hand():
    # Three domains of three batches, and every third one is dead: none is first or last.
    stream = arrange("dead_sensor", every=3)
    found = batches(stream)
    dead = [None, None]
    assert [number for number, batch in enumerate(found, start=1) if None in batch] == [3, 6, 9, 12]
    assert all(found[number] == dead for number in (2, 5, 8, 11))
    assert [(batch.x * 255).unique().round().tolist() for batch in stream if batch.y[0] < 0] == [[0], [255], [127], [0]]
    assert {batch.x.shape for batch in stream} == {(2, 3, 1, 1)}
    assert [batch.position for batch in stream] == [0] * 4 + [1] * 4 + [2] * 5
    live = [value for batch in found if batch != dead for value in batch]
    assert sorted(live) == [*range(6), *range(10, 16), *range(20, 26)] != live
    labels = [int(label) for batch in stream for label in batch.y if label >= 0]
    assert labels == [LABELS[value % 10] for value in live], "labels stay with their samples"
    # A domain that is smaller than a batch: the dead one comes before it, and is whole.
    assert [len(batch) for batch in batches(arrange("dead_sensor", every=2, batch=8))] == [6, 8, 6, 8, 6]
    assert stream.notes == ("Dead batches are not scored.",)


def test_poisoned_by_hand():
    stream = arrange("poisoned", share=0.5, batch=6)
    for place, batch in enumerate(stream):
        kept = batch.y >= 0
        assert int(kept.sum()) == 3, "half of six"
        values = [int(value) - 10 * place for value in (batch.x[kept][:, 0, 0, 0] * 255).round()]
        assert len(set(values)) == 3
        assert batch.y[kept].tolist() == [LABELS[value] for value in values]
        assert all(len(sample.unique()) > 1 for sample in batch.x[~kept]), "noise is not grey"
    assert batches(stream) != batches(arrange("poisoned", share=0.5, batch=6, seed=1))
    assert [int((batch.y < 0).sum()) for batch in arrange("poisoned", share=0.2, batch=6)] == [1, 1, 1]
    assert not any((batch.y < 0).any() for batch in arrange("poisoned", share=0))
    assert stream.notes == ("Samples of noise are not scored.",)


def test_hostile_streams_that_other_protocols_can_say():
    whole = [*range(6), *range(10, 16), *range(20, 26)]
    turns = arrange("segments", shortest=1, longest=1, seed=2)
    assert [len(domain) for domain in turns.domains] == [2] * 9
    assert sum(one.name == other.name for one, other in pairwise(turns.domains)) <= 2, "another domain with every batch"
    assert sorted(shown(turns)) == whole
    long = KINDS["recurring"].make({"rounds": 20}).arrange(numbered(), Data(domains=("clean",), batch=2))
    assert segments(long) == [("clean", 0)] * 20


def test_days_of_small_drift():
    made = experiments.load(ROOT / "experiments/protocols/days.yaml")
    stream = open_stream(made.data, made.protocol)
    assert len(stream) == 10_010
    assert next(stream.batches(10_009)).x.shape == (4, 3, 32, 32)


def test_label_shift_by_hand():
    labels = [0, 1, 2] * 8
    stream = KINDS["label_shift"].make({"ratio": 4.0}).arrange(numbered(labels=labels), Data(batch=5))
    for domain in stream.domains:
        assert sorted(Counter(domain.labels.tolist()).values()) == [2, 4, 8]
        values = domain.load(np.arange(len(domain)))[0][:, 0, 0, 0]
        assert (np.diff(values.astype(int)) > 0).all(), "the kept samples stay in order, none twice"
    orders = {
        tuple(Counter(domain.labels.tolist())[one] for one in range(3))
        for seed in range(5)
        for domain in KINDS["label_shift"]
        .make({"ratio": 4.0, "seed": seed})
        .arrange(numbered(labels=labels), Data(batch=5))
        .domains
    }
    assert len(orders) > 3, "other classes are rare elsewhere"


def test_recurring_by_hand():
    once = [*range(6), *range(10, 16), *range(20, 26)]
    stream = arrange("recurring", rounds=3)
    assert shown(stream) == once * 3
    assert [batch.position for batch in stream][::3] == list(range(9))
    again = arrange("recurring", rounds=20, order=1)
    names = [name for name, _ in segments(again)]
    rounds = [tuple(names[start : start + 3]) for start in range(0, 60, 3)]
    assert all(set(one) == set(NAMES) for one in rounds)
    assert len(set(rounds)) > 3, "each round has an order of its own"
    assert len({id(domain) for domain in again.domains}) == 3, "a domain is never copied"


def test_drift_by_hand():
    stream = arrange("drift", severity=2)
    assert segments(stream) == [("a>b", 2), ("b>c", 2)]
    # Two samples at each of (2, 0), (1, 1), (0, 2); growing adds 100 times its severity.
    assert shown(stream) == [0, 1, 102, 103, 204, 205, 10, 11, 112, 113, 214, 215]


def test_drift_begins_and_ends_with_the_domains_themselves():
    data = Data(domains=("gaussian_noise", "contrast"), severity=3, images=8, batch=3)
    (drift,) = open_stream(data, KINDS["drift"].make({})).domains
    noise, contrast = open_stream(data).domains
    images, labels = drift.load(np.arange(8))
    assert np.array_equal(images[:2], noise.load(np.arange(2))[0])
    assert np.array_equal(images[6:], contrast.load(np.arange(6, 8))[0])
    assert np.array_equal(labels, noise.labels)
    rows = np.arange(2, 4)  # severities (2, 1)
    clean = open_stream(data.replace(domains="clean")).domains[0].load(rows)[0]
    between = corrupt(clean, "gaussian_noise", severity=2, seed=0, first=rows)
    assert np.array_equal(images[2:4], corrupt(between, "contrast", severity=1, seed=0, first=rows))


def test_clean_intervals_by_hand():
    clean = ("clean", 0)
    assert segments(arrange("clean_intervals")) == [("a", 5), clean, ("b", 5), clean, ("c", 5), clean]
    assert segments(arrange("clean_intervals", every=2)) == [("a", 5), ("b", 5), clean, ("c", 5)]


def test_segments_by_hand():
    stream = arrange("segments", shortest=1, longest=2, seed=3)
    assert sorted(shown(stream)) == [*range(6), *range(10, 16), *range(20, 26)]
    assert all(len(domain) in (2, 4) for domain in stream.domains)
    whole = arrange("segments", shortest=9, longest=9)
    assert shown(whole) == [10 * "abc".index(domain.name) + row for domain in whole.domains for row in range(6)]


# What holds for all of them.


@pytest.mark.parametrize("protocol", [*ALL, *RANDOM], ids=lambda protocol: protocol.kind)
@pytest.mark.parametrize("batch", [1, 4])
def test_the_same_each_time_and_from_any_batch(protocol: Protocol, batch: int):
    data = Data(batch=batch, severity=2)
    whole = list(protocol.arrange(numbered(), data))
    again = protocol.arrange(numbered(), data)
    assert len(again) == len(whole)
    assert {len(one.x) for one in whole} == {1} if batch == 1 else max(len(one.x) for one in whole) <= batch
    for start in range(len(whole) + 1):
        later = list(again.batches(start))
        assert [(b.step, b.position, b.first, b.last) for b in later] == [
            (b.step, b.position, b.first, b.last) for b in whole[start:]
        ]
        assert all(torch.equal(a.x, b.x) and torch.equal(a.y, b.y) for a, b in zip(later, whole[start:], strict=True))


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.kind)
def test_real_images(protocol: Protocol):
    data = Data(domains=("gaussian_noise", "contrast"), images=12, batch=5)
    stream = open_stream(data, protocol)
    batch = next(stream.batches(len(stream) - 1))
    assert batch.x.shape[1:] == (3, 32, 32)
    assert batch.last
    domain = stream.domains[batch.position]
    assert batch.y.tolist() == domain.labels[-len(batch.y) :].tolist()
    assert torch.equal(batch.x[-1:], to_tensor(domain.load(np.array([len(domain) - 1]))[0]))


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.kind)
def test_point_clouds_too(protocol: Protocol):
    # A dense point cloud and a thin one: 2048 and 649 points.
    data = Data(dataset="embedded_clouds", domains=("upsampling", "density"), images=12, batch=12)
    stream = open_stream(data, protocol)
    batch = next(iter(stream))
    assert batch.x.shape[2] == 3
    if protocol.kind in ("mixed", "drift"):
        assert batch.x.shape[1] == 1024
    assert (batch.y >= 0).all() or protocol.kind == "poisoned"


def test_dead_and_poisoned_point_clouds():
    data = Data(dataset="embedded_clouds", domains=("density",), images=8, batch=4)
    dead = list(open_stream(data, KINDS["dead_sensor"].make({"every": 2})))[1]
    assert dead.y.tolist() == [-1] * 4
    assert dead.x.shape == (4, 649, 3)
    assert not dead.x.any(), "all points at one place"
    (whole,) = open_stream(data.replace(batch=8), KINDS["poisoned"].make({"share": 0.5}))
    noise = whole.x[whole.y < 0]
    assert noise.shape == (4, 649, 3)
    assert len({float(sample.sum()) for sample in noise}) == 4, "each sample is other noise"
    radius = noise.norm(dim=2)
    assert radius.max() <= 1
    # In a ball, the share of points within r is r cubed.
    assert [float((radius < r).double().mean()) for r in (0.5, 0.8)] == pytest.approx([0.125, 0.512], abs=0.03)
    assert noise.mean((0, 1)).abs().max() < 0.05


def test_every_kind_has_its_line():
    written = [
        value
        for value in vars(importlib.import_module("ctta.data.protocols")).values()
        if inspect.isclass(value) and issubclass(value, Protocol) and not inspect.isabstract(value)
    ]
    assert len(written) >= 10
    assert set(written) == set(KINDS.values())
    for name, kind in KINDS.items():
        assert kind().kind == name
        assert kind.__doc__
        assert all(sentence for _, _, _, sentence in kind.describe())


# Settings.


def test_all_mistakes_at_once():
    spec = {
        "data": {"severity": 3, "domains": ["clean", "fog"], "bach": 7},
        "protocol": {"kind": "gradual", "severities": [0, 9], "rounds": 3},
        "seeds": "all",
    }
    with pytest.raises(ConfigError) as caught:
        experiments.make(spec)
    for words in ("no field 'bach'", "protocol: Gradual has no field 'rounds'", "seeds must be a list"):
        assert words in str(caught.value)
    del spec["data"]["bach"], spec["protocol"]["rounds"]
    with pytest.raises(ConfigError) as caught:
        experiments.make(spec)
    for words in (
        "protocol: severities must be a list of 1 to 5, at least one. Got [0, 9].",
        "Leave data.severity out. Got 3.",
        "leave the domain 'clean' out",
        "seeds must be a list",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "data", "words"),
    [
        ({"kind": "gradul"}, {}, "There is no kind 'gradul'. Did you mean 'gradual'?"),
        ({"rounds": 2}, {}, "a mapping with a kind"),
        ("gradual", {}, "a mapping with a kind"),
        ({"kind": "mixed", "order": 1}, {}, "Mixed has no field 'order'"),
        ({"kind": "continual", "order": "paper-11"}, {}, "no order 'paper-11'. Did you mean 'paper-1'?"),
        ({"kind": "continual", "order": "paper-1"}, {"domains": ["fog", "spatter"]}, "without spatter"),
        ({"kind": "continual", "order": "paper-1"}, {"dataset": "embedded_clouds"}, "without uniform"),
        ({"kind": "recurring", "rounds": 0}, {}, "'rounds' of Recurring must be a whole number, at least 1"),
        ({"kind": "dirichlet", "concentration": 0}, {}, "'concentration' of Dirichlet must be a number"),
        ({"kind": "segments", "shortest": 5, "longest": 2}, {}, "shortest must not be more than longest"),
        ({"kind": "drift"}, {"domains": ["fog"]}, "Name at least two"),
        ({"kind": "drift"}, {"severity": 0}, "severity of at least 1"),
        ({"kind": "drift"}, {"dataset": "cifar10_c", "path": "x"}, "CIFAR-10-C holds corrupted ones"),
        ({"kind": "gradual"}, {"dataset": "imagenet_r", "path": "x"}, "ImageNet-R has none"),
        ({"kind": "bursts", "length": 0}, {}, "'length' of Bursts must be a whole number, at least 1"),
        ({"kind": "one_class", "repeats": 1001}, {}, "'repeats' of OneClass must be a whole number, at least 1"),
        ({"kind": "dead_sensor", "every": 1}, {}, "'every' of DeadSensor must be a whole number, at least 2"),
        ({"kind": "poisoned", "share": 1.5}, {}, "'share' of Poisoned must be a number"),
        ({"kind": "clean_intervals"}, {"dataset": "cifar10_c", "path": "x"}, "CIFAR-10-C has none"),
        ({"kind": "clean_intervals", "every": 3}, {"domains": ["fog"]}, "at most the number of domains, 1"),
    ],
)
def test_wrong_settings(protocol, data, words):
    with pytest.raises(ConfigError) as caught:
        experiments.make({"data": data, "protocol": protocol})
    assert words in str(caught.value)


def test_the_paper_s_orders_have_names():
    protocol = KINDS["continual"].make({"order": "paper-7"})
    names = [domain.name for domain in open_stream(Data(images=1), protocol).domains]
    assert (names[:2], names[-1], len(names)) == (["frost", "impulse_noise"], "gaussian_noise", 15)
    some = open_stream(Data(images=1, domains=("fog", "contrast", "frost")), protocol)
    assert [domain.name for domain in some.domains] == ["frost", "contrast", "fog"]


def test_an_opened_stream_is_checked_too():
    with pytest.raises(ConfigError, match="at least two"):
        open_stream(Data(domains=("fog",)), KINDS["drift"].make({}))


def test_protocols_that_go_by_labels_need_them():
    for kind in ("sorted", "dirichlet", "label_shift", "bursts", "one_class"):
        with pytest.raises(InputError, match="some samples of a have none"):
            KINDS[kind].make({}).arrange(numbered(labels=[0, -1]), Data(batch=2))
    for kind in ("dead_sensor", "poisoned"):
        assert KINDS[kind].make({}).arrange(numbered(labels=[0, -1]), Data(batch=2)).domains[0].labels.max() == 0


def test_drift_needs_corruptions_that_are_made_on_the_fly(tmp_path):
    for name in ("data_uniform_1", "data_shear_1", "data_original"):
        np.save(tmp_path / f"{name}.npy", np.zeros((4, 9, 3), np.float32))
    np.save(tmp_path / "label.npy", np.zeros((4, 1), np.int64))
    data = Data(dataset="modelnet40_c", path=str(tmp_path), domains=("uniform", "shear"), severity=1, batch=2)
    assert len(open_stream(data).domains) == 2
    with pytest.raises(ConfigError, match="ModelNet40-C are stored"):
        open_stream(data, KINDS["drift"].make({}))


def test_the_protocol_decides_the_identity():
    plain = experiments.make({})
    assert plain.protocol == PLAIN
    assert plain.identity() == experiments.make({"protocol": {"kind": "continual"}}).identity()
    others = [{"kind": "recurring"}, {"kind": "recurring", "rounds": 3}, {"kind": "continual", "order": 1}]
    assert len({plain.identity(), *(experiments.make({"protocol": one}).identity() for one in others)}) == 4
    changed = override({}, ["protocol.kind=recurring", "protocol.rounds=3"])
    assert experiments.make(changed).protocol == KINDS["recurring"].make({"rounds": 3})


def test_every_shipped_protocol_loads():
    made = [experiments.load(path) for path in sorted(ROOT.glob("experiments/protocols/*.yaml"))]
    assert {one.protocol.kind for one in made} == set(KINDS)
    for one in made:
        small = one.data.replace(images=one.data.batch)
        stream = open_stream(small, one.protocol)
        assert len(stream) >= len(stream.domains), one.name
        assert DATASETS[small.dataset].needs_path is False
