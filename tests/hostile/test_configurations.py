"""Broken configurations: each ends in a sentence that names the key or the file, or has the effect that it asks for."""

from __future__ import annotations

import dataclasses
import os
import random
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctta import METHODS, ConfigError
from ctta.base import limits, plain_yaml
from ctta.base.text import message
from ctta.core.execution import Execution
from ctta.data.dataset import Data
from ctta.data.protocols import KINDS
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.experiments.clean_probe import Measure
from ctta.experiments.sections import override, read_yaml
from ctta.experiments.source_model import Model
from ctta.training import recipe
from ctta.training.recipe import Network, Recipe
from sentences import must_be_a_sentence, said

SHIPPED = Path(__file__).parents[2] / "experiments"
FILES = [
    "cifar10_resnet20.yaml",
    "precision_cifar10.yaml",
    "train_modelnet10_dgcnn.yaml",
    "paper/table10_modelnet40_c.yaml",
    "paper/table9_imagenet_r.yaml",
    "paper/table4_imagenet_c_orders.yaml",
    "protocols/dirichlet.yaml",
    "protocols/gradual.yaml",
    "protocols/recurring.yaml",
    "protocols/segments.yaml",
]
WRONG = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3.5,
    -0.0,
    10**12,
    10**18,
    2**63,
    10**400,
    10**5000,
    float("inf"),
    -float("inf"),
    float("nan"),
    1e308,
    5e-324,
    "",
    " ",
    "x",
    "a\nb",
    "\x1b[31mred\x1b[0m",
    "\u202eevil",
    "\0",
    "[/red]",
    "~nosuchuser/x",
    "../../etc",
    "/" * 300,
    "x" * 300,
    "y" * 5000,
    [],
    [[]],
    [None],
    ["x"],
    [0, 0],
    [1, "x"],
    {},
    {"x": 1},
    {"": {}},
    ["x"] * 5000,
    list(range(3000)),
    b"bytes",
    (1, 2),
]
KINDS_OF_SETTINGS = [
    *(kind.config_type for kind in METHODS.values()),
    *KINDS.values(),
    *(Data, Model, Measure, Execution, Recipe, Network),
]
WRITABLE = [value for value in WRONG if type(value) is not int or value < 10**1000]  # YAML has no longer numbers


def make(values):
    """What a file is read as: a training, a sweep or an experiment."""
    room = recipe if "train" in values else sweep if "grid" in values else experiments
    return room.make(values)


def places(values, here=()):
    """The path of every key and entry of a configuration."""
    entries = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in entries:
        yield (*here, key)
        yield from places(value, (*here, key))


def changed(values, place, value):
    """A copy with the value at a place replaced."""
    key, *rest = place
    copy = dict(values) if isinstance(values, dict) else list(values)
    copy[key] = changed(values[key], rest, value) if rest else value
    return copy


@pytest.mark.parametrize("name", FILES)
def test_every_key_with_every_wrong_value(name, attempt, capsys):
    values = read_yaml(SHIPPED / name)
    original = make(values)
    tried = 0
    for number, place in enumerate(places(values)):
        if ".".join(map(str, place)) in values.get("grid", {}):
            continue  # an axis replaces what the section has
        step = 3 if "grid" not in values else 12  # a sweep is made as often as it has points
        for wrong in WRITABLE[number % step :: step]:  # every field meets every value below
            made, code, text = said(lambda place=place, wrong=wrong: make(changed(values, place, wrong)), capsys)
            tried += 1
            if code == 0:
                assert made != original or reduce(getitem, place, values) == wrong, f"{place} = {wrong!r} has no effect"
            else:
                must_be_a_sentence(code, text)
                keys = [part for key in place if isinstance(key, str) for part in key.split(".")]
                assert any(key in text for key in keys) or "same experiment" in text, (place, wrong, text)
    attempt("configurations with a wrong value", tried)


@pytest.mark.parametrize("name", FILES)
def test_every_key_misspelt(name, attempt, capsys):
    values, tried = read_yaml(SHIPPED / name), 0
    for place in places(values):
        *above, key = place
        if isinstance(key, int) or above[:1] == ["grid"]:
            continue
        holder = reduce(getitem, above, values)
        renamed = {(f"{one}x" if one == key else one): value for one, value in holder.items()}
        misspelt = changed(values, above, renamed) if above else renamed
        _, code, text = said(lambda misspelt=misspelt: make(misspelt), capsys)
        must_be_a_sentence(code, text)
        assert f"{key}x" in text or key in text, text
        tried += 1
    attempt("configurations with a misspelt key", tried)


@pytest.mark.parametrize("kind", KINDS_OF_SETTINGS, ids=lambda kind: kind.__name__)
def test_every_field_with_every_wrong_value(kind, attempt):
    for field in dataclasses.fields(kind):
        for wrong in WRONG:
            attempt("fields with a wrong value")
            try:
                made = kind.make({field.name: wrong})
            except ConfigError as error:
                must_be_a_sentence(2, f"error {error}", names=field.name)
            else:
                kept = getattr(made, field.name)
                assert kept == (tuple(wrong) if isinstance(wrong, list) else wrong)
                assert type(kept) is not bool or wrong in (True, False)


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS = {
    "aliases that explode": (BOMB, "more than 20,000 values, the limit"),
    "merges that explode": (BOMB.replace("- ", "<<: "), "the limit"),
    "an alias inside itself": ("data: &x {path: *x}", "part of"),
    "deep lists": ("data: " + "[" * 5000 + "]" * 5000, "20 levels"),
    "deep mappings": ("data: " + "{a: " * 5000 + "1" + "}" * 5000, "20 levels"),
    "deep blocks": ("".join(f"{' ' * depth}a:\n" for depth in range(500)), "20 levels"),
    "a list that does not end": ("[" * 100_000, "20 levels"),
    "many values": ("seeds: [" + "1, " * 30_000 + "1]", "20,000 values"),
    "a long file": ("# " + "x" * limits.YAML_BYTES, "262,144 bytes, the limit"),
    "many digits": (f"seeds: [{'9' * 5000}]", "is not of kind int"),
    "many hexadecimal digits": (f"seeds: [0x{'f' * 5000}]", "the limit"),
    "a number beyond 64 bits": ("seeds: [9223372036854775808]", "the limit"),
    "a date that is none": ("notes: [2020-13-45, 2020-01-01]\nseedz: 1", "seedz"),
    "an explicit date": ("notes: [!!timestamp nonsense]", "timestamp"),
    "an object": ("data: !!python/object/apply:os.system [echo]", "constructor"),
    "an object of another kind": ("data: !!python/name:os.system", "constructor"),
    "a binary": ("data: !!binary x", "constructor"),
    "a set": ("data: !!set {a}", "constructor"),
    "a text as a number": ("seeds: [!!int abc]", "'abc' is not of kind int"),
    "an empty number": ("seeds: [!!int '']", "is not of kind int"),
    "maybe as true": ("data: !!bool maybe", "is not of kind bool"),
    "a key twice": ("data: {batch: 5, batch: 6}", "'batch' is given twice"),
    "a section twice": ("data: {}\ndata: {}", "'data' is given twice"),
    "a number as a key": ("data: {1: 2}", "a key must be a text"),
    "a word that YAML reads as true as a key": ("yes: 2", "a key must be a text"),
    "null as a key": ("~: 2", "a key must be a text"),
    "a list as a key": ("? [a]\n: 2", "a key must be a text"),
    "a mapping as a key": ("{? {a: b}: c}", "a key must be a text"),
    "a NUL": ('data: {path: "a\\0b"}', "no character"),
    "half a character": ('data: {path: "\\ud800"}', "no character"),
    "a control character": ("data: \x01", "not YAML"),
    "two documents": ("data: {}\n---\ndata: {}", "document"),
    "tabs": ("data:\n\tbatch: 5", "line 2"),
    "an alias of nothing": ("data: *nothing", "nothing"),
    "a merge with a number": ("data: {<<: 5}", "merging"),
    "a version of the future": ("%YAML 3.0\n---\ndata: {}", "version"),
    "nothing": ("", "must hold a mapping"),
    "a list": ("[1]", "must hold a mapping"),
    "a text": ("data", "must hold a mapping"),
    "many problems": ("".join(f"k{number}: 1\n" for number in range(9000)), "more lines like these"),
    "seeds twice": ("seeds: [0, 0]", "seeds: 0 is given more than once"),
    "a negative seed": ("seeds: [-1]", "seeds must be"),
    "many seeds": (f"seeds: {list(range(2000))}", "1 to 1,000"),
    "a grid of millions": (
        f"grid: {{data.batch: {list(range(1, 2001))}, data.seed: {list(range(2000))}}}",
        "4,000,000 points",
    ),
    "a stream that does not end": ("protocol: {kind: recurring, rounds: 1000000000000}", "100,000 is the limit"),
    "views that do not end": ("methods: [{method: dss, views: 1000000000}]", "at most 1000"),
    "a long name of a row": (f"methods: [{{method: dss, name: {'x' * 300}}}]", "at most 120 bytes"),
    "a long name": (f"name: {'x' * 300}", "at most 120 bytes"),
    "a name of long letters": (f"name: {'語' * 80}", "at most 120 bytes"),
    "a name that is a path": ("name: ../../up", "it has a slash"),
    "a name that is a number": ("name: 5", "A name is a text"),
    "a name of dots": ("name: ..", "needs a letter"),
    "a name with colours": ('name: "\\e[31mred"', "on one line"),
    "notes that are none": ("notes: 5", "notes must be a list"),
    "a note that is a number": ("notes: [5]", "notes must be a list"),
    "a preset that is a number": ("methods: [{method: dss, preset: 5}]", "preset must be a text"),
    "a preset that is a list": ("methods: [{method: dss, preset: [cifar10]}]", "preset must be a text"),
    "a method that is a number": ("methods: [5]", "an entry is a name"),
    "the mean of two channels": ("model: {mean: [0.5, 0.5], std: [0.5, 0.5]}", "one value per channel"),
    "a deviation of zero": ("model: {mean: [0.5], std: [0]}", "more than 0"),
    "a model of point clouds on images": ("data: {}\nmodel: {name: embedded_clouds}", "takes point clouds"),
    "a model of images on point clouds": ("data: {dataset: embedded_clouds}", "takes images"),
    "a name and a factory": ("model: {name: resnet18, factory: 'a:b'}", "exclude each other"),
    "a factory without a function": ("model: {factory: tiny}", "must read package.module:function"),
    "a factory that is empty": ("model: {factory: ''}", "factory"),
    "an axis that no method has": ("methods: [source]\ngrid: {method.lrr: [1, 2]}", "no method here has a field 'lrr'"),
    "an axis that its method lacks": ("grid: {methods: [source, dss], method.views: [2, 4]}", "the same experiment"),
    "an axis twice": ("grid: {seeds: [0, [0]]}", "the same experiment"),
}


@pytest.mark.parametrize("text", [pytest.param(*text, id=name) for name, text in ((k, (v,)) for k, v in TEXTS.items())])
def test_a_text_that_is_refused(text, attempt, capsys, tmp_path):
    content, words = text
    path = tmp_path / "experiment.yaml"
    path.write_text(content, encoding="utf-8", errors="surrogatepass")
    _, code, err = said(lambda: make(read_yaml(path)), capsys)
    must_be_a_sentence(code, err)
    assert words in " ".join(err.split()), err
    attempt("texts that are refused")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"\x80abc", b"PK\x03\x04" + bytes(100), bytes(range(256)), bytes(9)]
)
def test_what_is_no_text(content, attempt, capsys, tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_bytes(content)
    _, code, err = said(lambda: read_yaml(path), capsys)
    must_be_a_sentence(code, err)
    assert "experiment.yaml" in err
    attempt("files that are no configuration")


def test_what_is_no_file(attempt, capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    paths = [tmp_path, tmp_path / "pipe", tmp_path / "none", tmp_path / "loop", tmp_path / ("x" * 5000), Path("a\0b")]
    for path in [*paths, Path("/dev/zero"), Path("/dev/null"), Path("")]:
        _, code, err = said(lambda path=path: read_yaml(path), capsys)
        must_be_a_sentence(code, err)
        attempt("files that are no configuration")


def test_texts_that_were_damaged(attempt, capsys, tmp_path):
    generator, path, tried = random.Random(0), tmp_path / "experiment.yaml", 0
    for name in ("cifar10_resnet20.yaml", "paper/table4_imagenet_c_orders.yaml", "train_modelnet10_dgcnn.yaml"):
        whole = (SHIPPED / name).read_text()
        for _ in range(150):
            at, other = sorted(generator.sample(range(len(whole)), 2))
            token = generator.choice(
                [
                    "\t",
                    "\0",
                    "\x1b",
                    ":",
                    "- ",
                    "{",
                    "]",
                    "&a ",
                    "*a",
                    "!!int ",
                    "'",
                    '"',
                    "\ud800",
                    "é",
                    "%",
                    "|",
                    "\n\n",
                ]
            )
            damaged = generator.choice(
                [
                    whole[:at],
                    whole[at:],
                    whole[:at] + whole[other:],
                    whole[:at] + token + whole[at:],
                    whole[:other] + whole[at:],
                ]
            )
            path.write_text(damaged, encoding="utf-8", errors="surrogatepass")
            _, code, err = said(lambda: make(read_yaml(path)), capsys)
            if code:
                must_be_a_sentence(code, err)
            tried += 1
    attempt("damaged texts", tried)


@settings(
    derandomize=True, max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.sampled_from("ab0:,.-[]{}&*!|>'\"%@`#?~=<\n\t \\\x00\x85\u2028é") | st.characters(), max_size=60)
)
def test_any_text_is_read_or_refused(text, attempt):
    attempt("texts at random")
    try:
        plain_yaml.parse(text, "it")
    except ConfigError as error:
        must_be_a_sentence(2, f"error {error}")


def plain_values():
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    )


@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_section_is_used_or_refused(data, attempt):
    known = [
        "data",
        "model",
        "methods",
        "seeds",
        "notes",
        "name",
        "paper",
        "baseline",
        "protocol",
        "measure",
        "execution",
        "source",
        "grid",
        "average_over",
    ]
    values = {
        key: data.draw(plain_values())
        for key in data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))
    }
    attempt("values at random")
    try:
        make(values)
    except ConfigError as error:
        must_be_a_sentence(2, f"error {message(str(error))}")


@settings(
    derandomize=True, max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    key=st.sampled_from(
        ["data.batch", "data", "methods", "method.lr", "seeds", "", "x", "data.", ".x", "grid.data.batch", "a.b.c"]
    )
    | st.text(max_size=12),
    value=st.text(max_size=30),
)
def test_any_override_is_used_or_refused(key, value, attempt):
    attempt("overrides at random")
    try:
        make(override({"data": {"images": 5}, "methods": ["tent"]}, [f"{key}={value}"]))
    except ConfigError as error:
        must_be_a_sentence(2, f"error {message(str(error))}")


WITHOUT_EFFECT = [
    ("method.lrr=5", "Did you mean 'lr'?"),
    ("method.views=5", "no method here has a field 'views'"),
    ("method.name=x", "no method here has a field 'name'"),
    ("methods.x=5", "Write method.x for all methods"),
    ("methods.lr=5", "Write method.lr for all methods"),
    ("seeds.x=5", "'seeds' has no fields"),
    ("name.x=5", "'name' has no fields"),
    ("notes.0=5", "'notes' has no fields"),
    ("paper.x=5", "'paper' has no fields"),
    ("baseline.x=5", "'baseline' has no fields"),
    ("average_over.x=5", "'average_over' has no fields"),
    ("average_over=[data.batch]", "there is no grid"),
    ("datum.batch=5", "Did you mean 'data'?"),
    ("data.bach=5", "Did you mean 'batch'?"),
    ("data.batch.size=5", "Data has no field 'batch.size'"),
    ("measure.clean=5", "now called 'clean_samples'"),
    ("protocol.rounds=5", "protocol must be a mapping with a kind"),
    ("", "An override reads section.field=value"),
    ("=", "An override reads section.field=value"),
    ("=5", "An override reads section.field=value"),
    ("data.=5", "An override reads section.field=value"),
    (".batch=5", "An override reads section.field=value"),
    ("data.batch", "An override reads section.field=value"),
    ("data.batch=[", "--set data.batch is not YAML"),
    ("data.batch=!!python/object:x {}", "--set data.batch is not YAML"),
    ("data.batch=" + "9" * 5000, "--set data.batch is not YAML"),
    ("data.batch=" + "[" * 500, "20 levels"),
    ("data.batch={a: 1, a: 2}", "'a' is given twice"),
    ("x" * 5000, "An override reads section.field=value"),
    ("x" * 5000 + "=1", "There is no section"),
    ("grid={data.batch: [5]}", "this is a sweep"),
    ("data={dataset: imagenet_r, path: x, severity: 3}", "has no severity"),
    ("data={dataset: imagenet_r, path: x, severity: 0}", "has no severity"),
    ("execution={compile: true, views_per_pass: 4}", "views_per_pass would have no effect with compile"),
    ("execution={compile: true, parallel_passes: 2}", "parallel_passes would have no effect with compile"),
]


@pytest.mark.parametrize(("change", "words"), WITHOUT_EFFECT, ids=lambda value: value[:30])
def test_an_override_without_effect_is_refused(change, words, attempt, capsys):
    values = {"data": {"images": 5}, "methods": ["source", "tent"]}
    _, code, err = said(lambda: experiments.make(override(values, [change])), capsys)
    must_be_a_sentence(code, err)
    assert words in err
    attempt("overrides without effect")


def test_a_method_without_fields_has_no_fields_to_set(attempt):
    with pytest.raises(ConfigError, match="no method here has a field 'lr'"):
        override({"methods": ["source"]}, ["method.lr=5"])
    attempt("overrides without effect")


def test_plain_configurations_are_read_as_ever(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text("base: &base {batch: 5, images: 9}\ndata: {<<: *base, batch: 7}\nnotes: [2020-01-01, 1e3]\n")
    assert read_yaml(path)["data"] == {"batch": 7, "images": 9}
    assert read_yaml(path)["notes"] == ["2020-01-01", "1e3"]
    for file in sorted(SHIPPED.rglob("*.yaml")):
        assert read_yaml(file) == yaml.safe_load(file.read_text())
