"""The sections of a YAML file as plain data, and `--set` overrides of single settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ctta.base import plain_yaml
from ctta.base.errors import ConfigError, nearest
from ctta.base.limits import VALUE_LETTERS
from ctta.base.text import one_line, quoted, shorten
from ctta.methods import METHODS, known

WITHOUT_FIELDS = ("methods", "seeds", "vary", "name", "notes", "paper", "baseline", "average_over")


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read the sections of a YAML file and apply the overrides."""
    values = plain_yaml.read(path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping with 'data', 'model' and so on. Got {type(values).__name__}.")
    return override(values, overrides)


def override(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `section.field=value`, the value in YAML; `method.field` sets it for every method that has the field."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            raise ConfigError(f"An override reads section.field=value. Got {quoted(text)}.")
        values = put(values, key, plain_yaml.parse(value, f"--set {shorten(one_line(key), VALUE_LETTERS)}"))
        if problem := without_effect(key, [values]):
            raise ConfigError(f"--set {shorten(one_line(text), VALUE_LETTERS)}: {problem}")
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
    """List the methods of an experiment that names none: all of ctta's, or without source data those that need none."""
    return [name for name, kind in METHODS.items() if "source" in values or kind.traits.source == "none"]


def without_effect(key: str, points: Sequence[Mapping[str, Any]]) -> str:
    """Report that a setting changes nothing: its section has no fields, or no method here has it; empty if one has."""
    section, dot, name = key.partition(".")
    if dot and section in WITHOUT_FIELDS:
        hint = f"Write method.{name} for all methods, or" if section == "methods" else "Correct the name, or"
        return f"{quoted(section)} has no fields. {hint} give the whole of it: {section}=VALUE."
    if section != "method":
        return ""
    listed = [point.get("methods") for point in points]
    used = dict.fromkeys(_method_name(entry) for entries in listed if isinstance(entries, list) for entry in entries)
    kinds = [kind for method in used if (kind := known(method))]
    settings = [field for kind in kinds for field in fields(kind.config_type)]
    names = dict.fromkeys(("preset", *(field.name for field in settings)))
    if not kinds or name in names:  # without a method that exists, `experiment.draft` reports that
        return ""
    now = {field.metadata["was"]: field.name for field in settings if field.metadata["was"]}
    hint = f"It is now called {quoted(now[name])}." if name in now else nearest(name, names)
    return f"no method here has a field {quoted(name)}. {hint}"


def _method_name(entry: Any) -> str:
    return str(entry.get("method")) if isinstance(entry, Mapping) else str(entry)


def _with_field(entry: Any, name: str, value: Any) -> Any:
    kind = known(_method_name(entry))
    if kind is None or name not in ("preset", *kind.config_type.fields()):
        return entry
    return {**({"method": entry} if isinstance(entry, str) else entry), name: value}
