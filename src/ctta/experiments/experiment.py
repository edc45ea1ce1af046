"""An experiment: data, protocol, model, source data, methods and seeds, as typed and frozen settings from strict YAML.

Unknown keys, wrong types and bad ranges are all reported at once. The hash of the resolved experiment is the identity
of a run: finished work is skipped, a killed run goes on where it was, and a changed one cannot be resumed by mistake.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from torch import nn

from ctta.base.config import Config, section, setting
from ctta.base.errors import ConfigError, nearest
from ctta.core.execution import Execution
from ctta.core.networks import Normalized
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import problems as data_problems
from ctta.data.datasets import protocol_problems
from ctta.data.protocols import KINDS, PLAIN, Protocol
from ctta.experiments.clean_probe import Measure
from ctta.methods import METHODS
from ctta.models import EMBEDDED_NETWORKS, MODELS, embedded_cloud_model, embedded_model, from_factory
from ctta.models import load as load_model
from ctta.paper import TABLES
from ctta.records.run_folder import Cell

SECTIONS = ("data", "protocol", "model", "source", "methods", "seeds", "execution")  # those that decide the numbers
NOTHING: Mapping[str, str] = MappingProxyType({})
# What does not decide the numbers: how they are shown; and settings of where files lie, and what is expected.
SHOWING = ("name", "notes", "paper", "baseline")
BESIDES = (
    ("data", "path"),
    ("data", "list"),
    ("data", "cache"),
    ("source", "path"),
    ("source", "list"),
    ("source", "cache"),
    ("model", "weights"),
    ("model", "expected_error"),
    ("model", "tolerance"),
)

EMBEDDED = {"embedded": embedded_model, "embedded_clouds": embedded_cloud_model}


@dataclass(frozen=True)
class Model(Config):
    """The source model."""

    name: str | None = setting(
        "embedded", "'embedded', 'embedded_clouds', a name from ctta.models.MODELS, or 'timm:...' and its like."
    )
    weights: str | None = setting(None, "The file with its weights; not for the embedded model.")
    factory: str | None = setting(None, "Any model: package.module:function or file.py:function, instead of a name.")
    mean: tuple[float, ...] | None = setting(None, "Mean of the model's own normalisation, if it is not inside it.")
    std: tuple[float, ...] | None = setting(None, "Standard deviation of the same.")
    expected_error: float | None = setting(
        None,
        "The source error in percent that you know of: on the clean samples where the data set has them, else over the "
        "domains of the run. A run that is off is marked as not valid.",
        low=0,
        high=100,
    )
    tolerance: float = setting(3.0, "Points by which it may be off; chance is allowed for beside it.", low=0)

    def load(self) -> nn.Module:
        """The model, in eval mode, for images in [0, 1]."""
        if self.factory:
            return from_factory(self.factory, self.weights, mean=self.mean, std=self.std)
        if self.name is not None and self.name not in EMBEDDED:
            return load_model(self.name, self.weights, mean=self.mean, std=self.std)
        model = EMBEDDED[self.name or "embedded"]()
        if self.mean is not None and self.std is not None:
            model = Normalized(model, self.mean, self.std)
        return model.eval()

    def problems(self) -> list[str]:
        """What the types alone do not tell."""
        found = (
            ["mean and std belong together: give both, or neither."]
            if (self.mean is None) != (self.std is None)
            else []
        )
        if self.factory is None:
            known = [*MODELS, *EMBEDDED]
            if self.name is None:
                found.append("Give a name or a factory.")
            elif self.name not in known and ":" not in self.name:
                found.append(f"There is no model {self.name!r}. {nearest(self.name, known)}")
            if self.name in EMBEDDED and self.weights is not None:
                found.append(
                    "Embedded models come with their weights. Their networks are 'small_resnet' and 'small_pointnet'."
                )
            network = EMBEDDED_NETWORKS.get(str(self.name), str(self.name))
            if network in MODELS and MODELS[network].clouds and self.mean is not None:
                found.append(f"{self.name!r} takes clouds, which have no mean and std of channels. Leave them out.")
        return found


@dataclass(frozen=True)
class Method:
    """One row of the table: a method, its preset and the fields that differ from it."""

    method: str
    label: str
    preset: str | None
    fields: Mapping[str, Any]

    def cell(self, shape: Sequence[int], seed: int) -> Cell:
        """With its settings resolved for batches of this shape."""
        kind = METHODS[self.method]
        preset = kind.preset_name(self.preset, shape)
        config = kind.config_type.make({**kind.preset_fields(preset), **self.fields}).asdict()
        name = f"{_slug(self.label)}-s{seed}"
        return Cell(name, self.method, self.label, seed, preset, config, asdict(kind.traits))


@dataclass(frozen=True)
class Experiment:
    """Data and their arrangement, model, methods and seeds."""

    name: str
    data: Data
    model: Model
    methods: tuple[Method, ...]
    seeds: tuple[int, ...] = (0,)
    notes: tuple[str, ...] = ()
    source: Data | None = None  # clean data of the source, for methods that need some
    execution: Execution = field(default_factory=Execution)
    protocol: Protocol = PLAIN
    paper: str | None = None  # the table of the paper that the run is put beside
    measure: Measure = field(default_factory=Measure)
    baseline: str | None = None  # the label that the others are compared with; without it Source, if it is there

    def asdict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def identity(self, files: Mapping[str, str] = NOTHING) -> str:
        """A hash of all that decides the numbers. `files` stands for what files hold: where they lie is no matter."""
        decisive = {key: value for key, value in self.asdict().items() if key not in SHOWING}
        if self.protocol == PLAIN:  # the same stream, whether it is named or not
            del decisive["protocol"]
        if self.measure == Measure():
            del decisive["measure"]
        for part, name in BESIDES:
            (decisive[part] or {}).pop(name, None)
        decisive["files"] = dict(files)
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def cells(self, shape: Sequence[int]) -> tuple[Cell, ...]:
        """Every method with every seed, with its settings resolved for batches of this shape."""
        return tuple(method.cell(shape, seed) for method in self.methods for seed in self.seeds)


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read a YAML file; overrides are `data.images=500`."""
    return make(read_yaml(path, overrides), name=path.stem)


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The sections of a YAML file."""
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}. Give the path of a YAML file.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping with 'data', 'model' and so on. Got {type(data).__name__}.")
    return override(data, overrides)


def override(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `section.field=value`; the value is YAML. `method.field` sets it for every method that has it."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"An override reads section.field=value. Got {text!r}.")
        data = put(data, key, yaml.safe_load(value))
    return data


def put(data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """With one setting changed: `section.field`, a whole section, or `method.field` for every method that has it.

    A section that cannot be used stays as it is; `draft` says what is wrong with it.
    """
    section, dot, name = key.partition(".")
    if not dot:
        return {**data, key: value}
    if section == "method":
        entries = data.get("methods", able_methods(data))
        whole = isinstance(entries, list)
        return {**data, "methods": [_with_field(entry, name, value) for entry in entries] if whole else entries}
    fields = {} if data.get(section) is None else data[section]
    return {**data, section: {**fields, name: value}} if isinstance(fields, Mapping) else data


def able_methods(data: Mapping[str, Any]) -> list[str]:
    """The methods that run where an experiment names none: all, or those that need no source data."""
    return [name for name, kind in METHODS.items() if "source" in data or kind.traits.source == "none"]


@dataclass(frozen=True)
class Draft:
    """An experiment as far as it can be read, and what is wrong with it."""

    data: Data | None  # none where the section cannot be used
    model: Model | None
    methods: tuple[Method, ...]  # those that can be used
    seeds: tuple[int, ...]
    source: Data | None
    execution: Execution
    problems: tuple[str, ...]
    protocol: Protocol = PLAIN  # also where the section cannot be used
    measure: Measure = field(default_factory=Measure)  # the same
    baseline: str | None = None


def draft(data: Mapping[str, Any]) -> Draft:
    """From plain data; a mistake in one section does not hide another."""
    problems: list[str] = []
    known = [*(field.name for field in fields(Experiment)), "grid", "over"]
    problems += [f"There is no section {key!r}. {nearest(str(key), known)}" for key in data if key not in known]
    if "grid" in data:
        problems.append("grid: this is a sweep of experiments, not one. ctta.sweep reads it.")
    elif "over" in data:
        problems.append("over: it names axes of a grid, and there is no grid. Add one, or leave it out.")
    stream = section(Data, "data", data.get("data", {}), problems)
    protocol = _protocol(data["protocol"], stream, problems) if "protocol" in data else PLAIN
    model = section(Model, "model", data.get("model", {}), problems)
    if stream is not None and (found := data_problems(stream)):
        problems += [f"data: {problem}" for problem in found]
        stream = None
    if model is not None and (found := model.problems()):
        problems += [f"model: {problem}" for problem in found]
        model = None
    execution = section(Execution, "execution", data.get("execution", {}), problems) or Execution()
    source = _source(data["source"], stream, problems) if "source" in data else None
    methods = _methods(data.get("methods", able_methods(data)), problems)
    if "source" not in data:
        problems += [_without_source(method) for method in methods if METHODS[method.method].traits.source != "none"]
    seeds = data.get("seeds", [0])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        problems.append(f"seeds must be a list of whole numbers, at least one. Got {seeds!r}.")
        seeds = [0]
    if (beside := data.get("paper")) is not None and beside not in tuple(TABLES):
        problems.append(f"paper: There is no table {beside!r}. {nearest(str(beside), TABLES)}")
    measure = _measure(data.get("measure", {}), stream, problems)
    baseline = _baseline(data.get("baseline"), methods, problems)
    return Draft(stream, model, methods, tuple(seeds), source, execution, tuple(problems), protocol, measure, baseline)


def make(data: Mapping[str, Any], name: str = "experiment") -> Experiment:
    """From plain data; all mistakes are reported together."""
    read = draft(data)
    if read.problems or read.data is None or read.model is None:
        raise ConfigError("\n".join(read.problems))
    notes = tuple(str(note) for note in data.get("notes", []))
    named = str(data.get("name", name))
    return Experiment(
        name=named,
        data=read.data,
        model=read.model,
        methods=read.methods,
        seeds=read.seeds,
        notes=notes,
        source=read.source,
        execution=read.execution,
        protocol=read.protocol,
        paper=data.get("paper"),
        measure=read.measure,
        baseline=read.baseline,
    )


def _protocol(values: Any, stream: Data | None, problems: list[str]) -> Protocol:
    """The section of the protocol: its kind says which fields there are."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        example = f"protocol is a mapping with a kind and its fields: protocol: {{kind: gradual}}. Got {values!r}."
        named = f"protocol: There is no kind {kind!r}. {nearest(str(kind), KINDS)}"
        problems.append(example if kind is None else named)
        return PLAIN
    protocol: Protocol | None = section(KINDS[kind], "protocol", values, problems)
    if protocol is None or stream is None:
        return PLAIN
    found = [f"protocol: {problem}" for problem in protocol_problems(protocol, stream)]
    problems += found
    return PLAIN if found else protocol


def _measure(values: Any, stream: Data | None, problems: list[str]) -> Measure:
    measure = section(Measure, "measure", values, problems)
    if measure is None:
        return Measure()
    problems += [f"measure: {problem}" for problem in measure.problems(stream)] if stream is not None else []
    return measure


def _baseline(value: Any, methods: Sequence[Method], problems: list[str]) -> str | None:
    labels = [method.label for method in methods]
    if value is not None and value not in labels:
        problems.append(f"baseline is the label of a row, and there is no row {value!r}. {nearest(str(value), labels)}")
        return None
    return None if value is None else str(value)


def _source(values: Any, stream: Data | None, problems: list[str]) -> Data | None:
    """The section of source data: clean, in batches like the stream's, and none that the stream shows again."""
    if isinstance(values, Mapping) and stream is not None:
        values = {"batch": stream.batch, **values}
    source: Data | None = section(Data, "source", values, problems)
    if source is None:
        return None
    problems += [
        f"source: source data are clean; leave {name!r} out." for name in ("domains", "severity") if name in values
    ]
    source = source.replace(domains=CLEAN, severity=0)
    problems += [f"source: {problem}" for problem in data_problems(source)]
    if stream is not None and (source.dataset, source.path) == (stream.dataset, stream.path):
        ends = [math.inf if data.images is None else data.first + data.images for data in (source, stream)]
        if source.first < ends[1] and stream.first < ends[0]:
            problems.append(
                "source: some of these samples are in the stream too, which would tell methods about the test. Use "
                "other data, or part them with 'first' and 'images' in both sections."
            )
    return source


def _without_source(method: Method) -> str:
    return (
        f"methods: {method.method!r} needs source data and there are none. Add a section, for example "
        "source: {dataset: arrays, path: train.npz, images: 2000}, or leave the method out. The embedded data are test "
        "data alone; a part of them that the stream leaves out can serve: source: {dataset: embedded, first: 8000}."
    )


def _methods(entries: Any, problems: list[str]) -> tuple[Method, ...]:
    if not isinstance(entries, list) or not entries:
        problems.append(f"methods must be a list of names or mappings, at least one. Got {entries!r}.")
        return ()
    made = [one for entry in entries if (one := _method(entry, problems)) is not None]
    names = [_slug(method.label) for method in made]  # the files are named for it, so it must tell rows apart
    for method, name in zip(made, names, strict=True):
        if not name:
            problems.append(f"methods: the label {method.label!r} needs a letter or a digit.")
    for label in sorted({method.label for method, name in zip(made, names, strict=True) if names.count(name) > 1}):
        problems.append(f"methods: two rows are called {label!r}, or nearly so. Give each a label of its own.")
    return tuple(made)


def _method(entry: Any, problems: list[str]) -> Method | None:
    entry = {"method": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, Mapping) or not isinstance(entry.get("method"), str):
        problems.append(f"methods: an entry is a name, or a mapping with 'method' and fields. Got {entry!r}.")
        return None
    name = entry["method"]
    if name not in METHODS:
        problems.append(f"methods: There is no method {name!r}. {nearest(name, METHODS)}")
        return None
    kind, preset = METHODS[name], entry.get("preset")
    fields = {key: value for key, value in entry.items() if key not in ("method", "label", "preset")}
    found = []
    try:
        kind.preset_fields(kind.preset_name(preset, (1, 3, 32, 32)))
    except ConfigError as error:
        found.append(f"methods: {error}")
    try:
        kind.config_type.make(fields)
    except ConfigError as error:
        found += [f"methods: {line}" for line in str(error).splitlines()]
    problems += found
    return None if found else Method(name, str(entry.get("label", kind.title)), preset, fields)


def _with_field(entry: Any, name: str, value: Any) -> Any:
    mapping = {"method": entry} if isinstance(entry, str) else entry
    kind = METHODS.get(str(mapping.get("method"))) if isinstance(mapping, Mapping) else None
    return {**mapping, name: value} if kind is not None and name in ("preset", *kind.config_type.fields()) else entry


def _slug(label: str) -> str:
    kept = "".join(letter if letter.isalnum() else "-" for letter in label.lower())
    return "-".join(part for part in kept.split("-") if part)
