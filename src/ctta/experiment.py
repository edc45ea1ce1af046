"""An experiment: data, model, methods and seeds, as typed and frozen settings from strict YAML.

Unknown keys, wrong types and bad ranges are all reported at once. The hash of the resolved experiment is the identity
of a run: finished work is skipped, a killed run goes on where it was, and a changed one cannot be resumed by mistake.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from ctta.adapter import preset_by_input
from ctta.config import Config, section, setting
from ctta.errors import ConfigError, nearest
from ctta.layers import Normalized
from ctta.methods import METHODS
from ctta.models import MODELS, embedded_cloud_model, embedded_model, from_factory
from ctta.models import load as load_model
from ctta.records import Cell
from ctta.streams import Data
from ctta.streams import problems as data_problems

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
        return found


@dataclass(frozen=True)
class Method:
    """One row of the table: a method, its preset and the fields that differ from it."""

    method: str
    label: str
    preset: str | None
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """Data, model, methods and seeds."""

    name: str
    data: Data
    model: Model
    methods: tuple[Method, ...]
    seeds: tuple[int, ...] = (0,)
    notes: tuple[str, ...] = ()

    def asdict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def identity(self) -> str:
        """A hash of all that decides the numbers."""
        decisive = {key: value for key, value in self.asdict().items() if key not in ("name", "notes")}
        decisive["data"].pop("cache")
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def cells(self, shape: Sequence[int]) -> tuple[Cell, ...]:
        """Every method with every seed, with its settings resolved for batches of this shape."""
        made = []
        for method in self.methods:
            kind = METHODS[method.method]
            preset = preset_by_input(shape) if method.preset in (None, "paper") else method.preset
            config = kind.config_type.make({**kind.presets[preset], **method.fields}).asdict()
            stem = _slug(method.label)
            made += [Cell(f"{stem}-s{seed}", method.method, method.label, seed, preset, config) for seed in self.seeds]
        return tuple(made)


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
    """Apply `section.field=value`; the value is YAML. `method.field` sets the field for every method that has it."""
    for text in overrides:
        key, equals, value = text.partition("=")
        section, dot, name = key.partition(".")
        if not equals:
            raise ConfigError(f"An override reads section.field=value. Got {text!r}.")
        parsed = yaml.safe_load(value)
        if not dot:
            data = {**data, key: parsed}
        elif section == "method":
            data = {**data, "methods": [_with_field(entry, name, parsed) for entry in data.get("methods", [])]}
        else:
            data = {**data, section: {**(data.get(section) or {}), name: parsed}}
    return data


def make(data: Mapping[str, Any], name: str = "experiment") -> Experiment:
    """From plain data; all mistakes are reported together."""
    problems: list[str] = []
    known = ("name", "data", "model", "methods", "seeds", "notes")
    problems += [f"There is no section {key!r}. {nearest(str(key), known)}" for key in data if key not in known]
    stream = section(Data, "data", data.get("data", {}), problems)
    model = section(Model, "model", data.get("model", {}), problems)
    problems += [f"data: {problem}" for problem in data_problems(stream)] if stream is not None else []
    problems += [f"model: {problem}" for problem in model.problems()] if model is not None else []
    methods = _methods(data.get("methods", list(METHODS)), problems)
    seeds = data.get("seeds", [0])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        problems.append(f"seeds must be a list of whole numbers, at least one. Got {seeds!r}.")
    if problems or stream is None or model is None:
        raise ConfigError("\n".join(problems))
    notes = tuple(str(note) for note in data.get("notes", []))
    return Experiment(str(data.get("name", name)), stream, model, methods, tuple(seeds), notes)


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
    if preset not in (None, "paper", *kind.presets):
        problems.append(f"methods: {name} has no preset {preset!r}. {nearest(str(preset), [*kind.presets, 'paper'])}")
    try:
        kind.config_type.make(fields)
    except ConfigError as error:
        problems += [f"methods: {line}" for line in str(error).splitlines()]
    return Method(name, str(entry.get("label", kind.title)), preset, fields)


def _with_field(entry: Any, name: str, value: Any) -> Any:
    mapping = {"method": entry} if isinstance(entry, str) else dict(entry)
    kind = METHODS.get(mapping.get("method", ""))
    return {**mapping, name: value} if kind is not None and name in kind.config_type.fields() else entry


def _slug(label: str) -> str:
    kept = "".join(letter if letter.isalnum() else "-" for letter in label.lower())
    return "-".join(part for part in kept.split("-") if part)
