"""What a seed moves: the method, the order, the samples; and what a table says about it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ctta.base.errors import ConfigError
from ctta.cli.app import app
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.protocols import KINDS, PLAIN
from ctta.experiments import experiment as experiments
from ctta.experiments.seeds import seeded_stream
from ctta.records.run_folder import RunFolder
from ctta.report.results import Results
from ctta.report.tables import errors, summary
from ctta.running.run import run

DATA = {"domains": ["fog", "contrast"], "images": 40, "batch": 20}
SPEC = {"data": DATA, "model": {"name": None, "factory": "tiny:network"}, "methods": ["source", "dss"], "seeds": [0, 1]}


@pytest.fixture
def arrays(tmp_path):
    images = np.arange(30, dtype=np.uint8)[:, None, None, None] * np.ones((1, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(30) % 10)
    return Data(dataset="arrays", path=str(tmp_path / "a.npz"), domains=("clean",), batch=5, images=10)


def numbers(stream, position=0):
    """Which samples a domain has, in order: image i has the value i."""
    domain = stream.domains[position]
    samples, labels = domain.load(np.arange(len(domain)))
    found = samples[:, 0, 0, 0].tolist()
    assert labels.tolist() == [number % 10 for number in found]
    return found


def test_the_method_alone_leaves_the_stream_as_it_is(arrays):
    for seed in (0, 3):
        assert numbers(seeded_stream(arrays, PLAIN, ("method",), seed)) == list(range(10))


def test_the_order(arrays):
    one, again, other = (numbers(seeded_stream(arrays, PLAIN, ("order",), seed)) for seed in (0, 0, 1))
    assert one == again != other
    assert sorted(one) == sorted(other) == list(range(10))
    assert one != list(range(10))


def test_the_samples(arrays):
    one, again, other = (numbers(seeded_stream(arrays, PLAIN, ("samples",), seed)) for seed in (0, 0, 1))
    assert one == again != other
    for drawn in (one, other):
        assert drawn == sorted(set(drawn))
        assert len(drawn) == 10
    assert max(one + other) >= 10
    later = numbers(seeded_stream(arrays.replace(first=15), PLAIN, ("samples",), 0))
    assert min(later) >= 15


def test_both_and_a_start_in_the_middle(arrays):
    stream = seeded_stream(arrays, PLAIN, ("order", "samples"), 2)
    found = numbers(stream)
    assert found != sorted(found)
    assert sorted(found) == numbers(seeded_stream(arrays, PLAIN, ("samples",), 2))
    whole = list(stream)
    (last,) = stream.batches(1)
    assert last.x.equal(whole[1].x)


def test_every_domain_has_the_same_samples(arrays):
    stream = seeded_stream(arrays.replace(domains=("clean", "clean")), PLAIN, ("order", "samples"), 1)
    assert numbers(stream, 0) == numbers(stream, 1)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_protocol(kind):
    data = Data(domains=("fog", "contrast"), images=30, batch=10)
    protocol = KINDS[kind]()
    plain, one, other = (
        list(stream)
        for stream in (
            open_stream(data, protocol),
            seeded_stream(data, protocol, ("order", "samples"), 0),
            seeded_stream(data, protocol, ("order", "samples"), 1),
        )
    )
    assert plain[0].domain == one[0].domain == other[0].domain
    assert len(plain[0].y) == len(one[0].y)
    assert not one[0].x.equal(other[0].x)


def test_samples_also_draws_the_corruption():
    data = Data(domains=("gaussian_noise",), images=None, first=9_990)
    one, other = (seeded_stream(data, PLAIN, ("samples",), seed).domains[0].read(np.arange(2)) for seed in (0, 1))
    assert not np.array_equal(one, other)
    assert np.array_equal(one, open_stream(data).domains[0].read(np.arange(2)))


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ("order", "vary must be a list"),
        ([], "vary must be a list"),
        (["orders"], "seeds cannot move 'orders'. Did you mean 'order'?"),
        ([["order"]], "seeds cannot move"),
        (["order", "order"], "each is named once"),
    ],
)
def test_mistakes(vary, words):
    with pytest.raises(ConfigError) as error:
        experiments.make(SPEC | {"vary": vary})
    assert words in str(error.value)


def test_samples_that_cannot_be_drawn(tmp_path):
    stored = {"dataset": "cifar10_c", "path": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"samples draws data.images of all samples"):
        experiments.make({"data": stored, "vary": ["samples"]})


def test_source_data_that_could_be_drawn_are_refused():
    source = {"dataset": "embedded", "first": 8000, "images": 100}
    spec = SPEC | {"methods": ["eata"], "source": source}
    assert experiments.make(spec).vary == ("method",)
    with pytest.raises(ConfigError, match="some of these samples are in the stream too"):
        experiments.make(spec | {"vary": ["samples"]})
    safe = {"data": DATA | {"first": 5000}, "source": source | {"first": 0}}
    assert experiments.make(spec | safe | {"vary": ["samples"]}).vary == ("samples",)


def test_what_is_not_named_does_not_change_the_identity():
    plain = experiments.make(SPEC).identity()
    assert experiments.make(SPEC | {"vary": ["method"]}).identity() == plain
    moved = experiments.make(SPEC | {"vary": ["order", "method"]})
    assert moved.vary == ("method", "order")
    assert moved.identity() != plain


def ran(folder, **sections):
    *_, status = run(experiments.make(SPEC | sections), folder)
    assert not status.failures
    return RunFolder(folder)


def wrong(folder, cell):
    return [(record.n, record.wrong, record.info) for record in folder.records(cell)]


def test_a_run_and_its_table(tmp_path):
    plain, moved = ran(tmp_path / "a"), ran(tmp_path / "b", vary=["order", "samples"])
    assert wrong(plain, "source-s0") == wrong(plain, "source-s1")
    assert wrong(plain, "dss-s0") != wrong(plain, "dss-s1")
    assert wrong(moved, "source-s0") != wrong(moved, "source-s1")
    source, dss = errors.build(Results.load(plain.path)).rows
    assert (source.fixed, source.mean.sd, source.mean.seeds) == (True, None, 2)
    caption = errors.build(Results.load(plain.path)).caption()
    assert "Seeds vary the method's own draws. No ±: the same for every seed." in caption
    table = errors.build(Results.load(moved.path))
    assert [row.fixed for row in table.rows] == [False, False]
    assert table.rows[0].mean.sd is not None
    assert "Seeds vary the order of the samples and which samples are used." in table.caption()
    assert "No ±" not in table.caption()
    assert dss.label == "DSS"


def test_what_the_order_cannot_change_has_no_spread(tmp_path):
    folder = ran(tmp_path / "a", vary=["order"], methods=["source", "tent"], seeds=[0, 1, 2, 3])
    table = errors.build(Results.load(folder))
    source, tent = table.rows
    assert (source.fixed, source.mean.sd, tent.fixed) == (True, None, False)
    assert tent.mean.sd > 0
    notes = " ".join(summary.build(Results.load(folder), table).notes())
    assert "95 % over seeds: the order of the samples." in notes


def test_a_method_that_is_not_varied_draws_as_with_seed_0(tmp_path):
    moved = ran(tmp_path / "a", vary=["order"], seeds=[0, 5])
    swapped = ran(tmp_path / "b", vary=["order", "method"], seeds=[0, 5])
    assert wrong(moved, "dss-s0") == wrong(swapped, "dss-s0")
    assert wrong(moved, "dss-s5") != wrong(swapped, "dss-s5")
    assert wrong(moved, "source-s5") == wrong(swapped, "source-s5")


def test_a_killed_run_goes_on_with_the_stream_of_its_seed(tmp_path):
    whole = ran(tmp_path / "whole", vary=["order"], seeds=[3, 4])
    spec = experiments.make(SPEC | {"vary": ["order"], "seeds": [3, 4]})
    steps = run(spec, tmp_path / "cut")
    for status in steps:
        if status.last and status.last.job.cell.cell == "source-s4" and status.last.done == 2:
            break
    steps.close()
    *_, status = run(spec, tmp_path / "cut")
    cut = RunFolder(tmp_path / "cut")
    for cell in ("source-s3", "source-s4", "dss-s4"):
        assert wrong(cut, cell) == wrong(whole, cell)


def test_streams_whose_length_depends_on_the_seed(tmp_path):
    protocol = {"kind": "label_shift", "ratio": 20}
    folder = ran(tmp_path / "a", vary=["samples"], protocol=protocol, seeds=[0, 1, 2], methods=["source"])
    sizes = {cell: sum(record.n for record in folder.records(cell)) for cell in ("source-s0", "source-s1", "source-s2")}
    assert len(set(sizes.values())) > 1
    *_, status = run(
        experiments.make(SPEC | {"vary": ["samples"], "protocol": protocol, "seeds": [0, 1, 2], "methods": ["source"]}),
        tmp_path / "a",
    )
    assert status.jobs == 0, "all of them are complete"


def test_on_the_command_line(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC | {"methods": ["source"]}))
    words = ["run", str(path), "--out", str(tmp_path / "out"), "--quiet", "--set", "vary=[order]"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert "Seeds vary the order of the samples." in " ".join(made.output.split())
    said = CliRunner().invoke(app, [*words[:-1], "vary.order=1"]).output
    assert "'vary' has no fields" in said
