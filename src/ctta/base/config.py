"""Typed, frozen settings: a field is declared once, with its sentence, its range and the paper's symbol.

All mistakes of a configuration are found together and reported in one error.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from ctta.base.errors import ConfigError, nearest
from ctta.base.limits import TEXT_LETTERS, WHOLE_NUMBER
from ctta.base.text import one_line, quoted


def setting(
    default: Any,
    doc: str,
    *,
    symbol: str = "",
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    was: str = "",
    renamed: Mapping[Any, Any] | None = None,
) -> Any:
    """Declare a field: its default, one sentence, the paper's symbol and its range (`open_low`: low itself is out).

    `was` is the field's former name and `renamed` maps former values to those of today; errors name the new word.
    """
    metadata: dict[str, Any] = {"doc": doc, "symbol": symbol, "low": low, "high": high, "open_low": open_low}
    metadata |= {"was": was, "renamed": renamed or {}}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """The root of all method configurations. Fields are declared with `setting`."""

    def __post_init__(self) -> None:
        annotations = typing.get_type_hints(type(self))
        problems = [problem for name in self.fields() if (problem := self._problem(name, annotations[name]))]
        if problems:
            raise ConfigError("\n".join(problems))

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of all fields, in order."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def make(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping; unknown names, wrong types and bad ranges are reported together."""
        problems = [cls._unknown(name) for name in values if name not in cls.fields()]
        known = {
            name: tuple(value) if isinstance(value, list) else value  # YAML and JSON have lists only
            for name, value in values.items()
            if name in cls.fields()
        }
        try:
            made = cls(**known)
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError("\n".join(problems))
        return made

    def replace(self, **values: Any) -> Self:
        """A copy with some fields changed."""
        return self.make({**self.asdict(), **values})

    def asdict(self) -> dict[str, Any]:
        """Plain data, for records, checkpoints and YAML."""
        return {name: getattr(self, name) for name in self.fields()}

    @classmethod
    def describe(cls) -> list[tuple[str, str, Any, str]]:
        """One row per field: name, what is accepted, default, sentence."""
        return [
            (field.name, _accepted(cls, field), field.default, _sentence(field)) for field in dataclasses.fields(cls)
        ]

    @classmethod
    def _unknown(cls, name: str) -> str:
        for field in dataclasses.fields(cls):
            if field.metadata.get("was") == name:
                return f"The field {quoted(name)} of {cls.__name__} is now called {quoted(field.name)}."
        return f"{cls.__name__} has no field {quoted(name)}. {nearest(name, cls.fields())}"

    def _problem(self, name: str, annotation: Any) -> str | None:
        field = next(field for field in dataclasses.fields(self) if field.name == name)
        value = getattr(self, name)
        if _fits(value, annotation) and _in_range(value, field.metadata):
            return None
        problem = f"The field {quoted(name)} of {type(self).__name__} must be {_accepted(type(self), field)}."
        former = field.metadata.get("renamed", {})
        if isinstance(value, str) and value in former:
            return f"{problem} {quoted(value)} is now called {quoted(former[value])}."
        return f"{problem} Got {quoted(value)} instead.{_limit(value, annotation)}"


def _sentence(field: dataclasses.Field[Any]) -> str:
    symbol = field.metadata.get("symbol")
    return str(field.metadata.get("doc", "")) + (f" ({symbol} in the paper)" if symbol else "")


def _accepted(cls: type[Config], field: dataclasses.Field[Any]) -> str:
    kind = _spell(typing.get_type_hints(cls)[field.name])
    low, high = field.metadata.get("low"), field.metadata.get("high")
    left = "more than" if field.metadata.get("open_low") else "at least"
    limits = [f"{left} {low:g}"] if low is not None else []
    limits += [f"at most {high:g}"] if high is not None else []
    return kind + (", " + " and ".join(limits) if limits else "")


def _spell(annotation: Any) -> str:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return " or ".join(_spell(option) for option in typing.get_args(annotation))
    if typing.get_origin(annotation) is Literal:
        return " or ".join(repr(option) for option in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        return f"a list, each entry {_spell(typing.get_args(annotation)[0])}"
    if typing.get_origin(annotation) is Mapping:
        return f"a mapping from names to values, each {_spell(typing.get_args(annotation)[1])}"
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", type(None): "none"}
    return names.get(annotation, str(annotation))


def _fits(value: Any, annotation: Any) -> bool:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return any(_fits(value, option) for option in typing.get_args(annotation))
    if typing.get_origin(annotation) is Literal:
        return any(value == option and type(value) is type(option) for option in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        entry = typing.get_args(annotation)[0]  # tuple[entry, ...]
        return isinstance(value, tuple) and all(_fits(one, entry) for one in value)
    if typing.get_origin(annotation) is Mapping:
        kinds = typing.get_args(annotation)
        return isinstance(value, Mapping) and all(_fits(k, kinds[0]) and _fits(v, kinds[1]) for k, v in value.items())
    if annotation is float:
        # Neither NaN nor infinity, nor a whole number that torch cannot hold.
        largest = WHOLE_NUMBER if isinstance(value, int) else sys.float_info.max
        return isinstance(value, int | float) and not isinstance(value, bool) and -largest <= value <= largest
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= WHOLE_NUMBER
    if annotation is str:
        return isinstance(value, str) and 0 < len(value) <= TEXT_LETTERS and one_line(value) == value
    return isinstance(value, annotation)


def _limit(value: Any, annotation: Any) -> str:
    """The limit that a value of an accepted kind is beyond; empty if it is of another kind."""
    kinds = (annotation, *typing.get_args(annotation))
    if str in kinds and isinstance(value, str):
        return f" A text has one line of 1 to {TEXT_LETTERS:,} letters."
    if {int, float} & set(kinds) and isinstance(value, int) and abs(value) > WHOLE_NUMBER:
        return f" A whole number is at most {WHOLE_NUMBER}."
    return ""


def _in_range(value: Any, metadata: Mapping[str, Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, high = metadata.get("low"), metadata.get("high")
    if low is not None and (value < low or (value == low and metadata.get("open_low"))):
        return False
    return high is None or value <= high


Kind = TypeVar("Kind", bound=Config)


def section(kind: type[Kind], name: str, values: Any, problems: list[str]) -> Kind | None:
    """One section of a YAML file; what is wrong with it goes to `problems`."""
    if not isinstance(values, Mapping):
        problems.append(f"{name} must be a mapping. Got {quoted(values)}.")
        return None
    try:
        return kind.make(values)
    except ConfigError as error:
        problems += [f"{name}: {line}" for line in str(error).splitlines()]
        return None
