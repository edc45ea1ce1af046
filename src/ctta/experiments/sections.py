"""The sections of a YAML file as plain data, and `--set` overrides of single settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ctta.base.errors import ConfigError, nearest
from ctta.methods import METHODS


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read the sections of a YAML file and apply the overrides."""
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}. Give the path of a YAML file.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping with 'data', 'model' and so on. Got {type(values).__name__}.")
    return override(values, overrides)


def override(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `section.field=value`, the value in YAML; `method.field` sets it for every method that has the field."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"An override reads section.field=value. Got {text!r}.")
        values = put(values, key, yaml.safe_load(value))
        if problem := without_effect(key, [values]):
            raise ConfigError(f"--set {text}: {problem}")
    return values


def put(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a copy with one setting changed: `section.field`, a whole section, or `method.field` for all methods."""
    section, dot, name = key.partition(".")
    if not dot:
        return {**values, key: value}
    if section == "method":
        entries = values.get("methods", default_methods(values))
        listed = isinstance(entries, list)
        return {**values, "methods": [_with_field(entry, name, value) for entry in entries] if listed else entries}
    # A section that is not valid stays as it is; `experiment.draft` reports what is wrong with it.
    former = {} if values.get(section) is None else values[section]
    return {**values, section: {**former, name: value}} if isinstance(former, Mapping) else values


def default_methods(values: Mapping[str, Any]) -> list[str]:
    """List the methods of an experiment that names none: all, or without source data those that need none."""
    return [name for name, kind in METHODS.items() if "source" in values or kind.traits.source == "none"]


def without_effect(key: str, points: Sequence[Mapping[str, Any]]) -> str:
    """Report that `method.field` names a field that no method of these experiments has; empty if one has it."""
    section, _, name = key.partition(".")
    listed = [point.get("methods") for point in points]
    used = {_method_name(entry) for entries in listed if isinstance(entries, list) for entry in entries}
    known = [field for method, kind in METHODS.items() if method in used for field in fields(kind.config_type)]
    names = dict.fromkeys(field.name for field in known)
    if section != "method" or not known or name in ("preset", *names):
        return ""
    now = {field.metadata["was"]: field.name for field in known if field.metadata["was"]}
    hint = f"It is now called {now[name]!r}." if name in now else nearest(name, names)
    return f"no method here has a field {name!r}. {hint}"


def _method_name(entry: Any) -> str:
    return str(entry.get("method")) if isinstance(entry, Mapping) else str(entry)


def _with_field(entry: Any, name: str, value: Any) -> Any:
    kind = METHODS.get(_method_name(entry))
    if kind is None or name not in ("preset", *kind.config_type.fields()):
        return entry
    return {**({"method": entry} if isinstance(entry, str) else entry), name: value}
