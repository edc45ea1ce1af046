"""Plain data from JSON as dataclasses: names, kinds and ranges are those that the dataclass declares.

A file that was cut, edited or damaged is refused with a sentence that names it, says what is wrong, and what to do.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from ctta.base.errors import StateError

LARGEST = 2**53  # whole numbers beyond it are no counts, and do not survive as floats
DEEPEST = 40  # levels of nesting
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", types.NoneType: "null"}

Natural = Annotated[int, 0]  # a whole number of at least 0
Positive = Annotated[int, 1]
T = TypeVar("T")


def read_json(path: Path, kind: type[T], remedy: str) -> T:
    """Read a JSON file as a dataclass; `remedy` is what to do if it is damaged."""
    try:
        return parse_json(path.read_bytes(), kind)
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}. {remedy}") from error
    except ValueError as error:
        raise StateError(f"{path} is damaged: {error}. {remedy}") from error


def parse_json(content: bytes, kind: type[T]) -> T:
    """Read a JSON text as a dataclass; a ValueError says what is wrong with it."""
    try:
        data = json.loads(content)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})" if content.strip() else "it is empty") from error
    _plain(data)
    return cast(T, _fitted(data, kind, ""))


def _plain(data: Any) -> None:
    """Check what holds for every value: the nesting is not too deep, and texts can be written again."""
    level = [data]
    for _ in range(DEEPEST):
        for text in (one for one in level if isinstance(one, str)):
            text.encode()
        level = [
            one
            for value in level
            if isinstance(value, dict | list)
            for one in ([*value, *value.values()] if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fitted(value: Any, kind: Any, where: str) -> Any:
    """A value as an annotation wants it: lists become tuples, mappings dataclasses."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, Union):
        if value is None and types.NoneType in arguments:
            return None
        (kind,) = (one for one in arguments if one is not types.NoneType)
        return _fitted(value, kind, where)
    if origin is Annotated:
        if is_typeddict(arguments[1]):
            return _mapped(value, arguments[1], where)
        value = _fitted(value, arguments[0], where)
        return value if value >= arguments[1] else _refuse(where, f"at least {arguments[1]}", value)
    if is_dataclass(kind) or is_typeddict(kind):
        return _mapped(value, kind, where)
    if origin is tuple:
        if not isinstance(value, list) or (arguments[-1] is not ... and len(value) != len(arguments)):
            _refuse(where, "a list" if arguments[-1] is ... else f"a list of {len(arguments)}", value)
        kinds = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return tuple(
            _fitted(one, kind, f"{where}[{i}]") for i, (one, kind) in enumerate(zip(value, kinds, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            _refuse(where, "a mapping", value)
        return {name: _fitted(one, arguments[1], f"{where}.{name}") for name, one in value.items()}
    if origin is not None and issubclass(origin, Sequence):
        if not isinstance(value, list):
            _refuse(where, "a list", value)
        return [_fitted(one, arguments[0], f"{where}[{i}]") for i, one in enumerate(value)]
    accepted = (int, float) if kind is float else (kind,)
    if type(value) not in accepted or (type(value) is int and abs(value) > LARGEST):
        _refuse(where, WORDS[kind], value)
    return value


def _mapped(value: Any, kind: Any, where: str) -> Any:
    if not isinstance(value, dict):
        _refuse(where, "a mapping", value)
    hints = _hints(kind)
    needed = kind.__required_keys__ if is_typeddict(kind) else [f.name for f in fields(kind) if _needed(f)]
    at = f" in {where.strip('.')}" if where else ""
    if missing := [name for name in needed if name not in value]:
        raise ValueError(f"{', '.join(map(repr, sorted(missing)))} is missing{at}")
    extra = [name for name in value if name not in hints]
    if extra and not is_typeddict(kind):
        raise ValueError(f"{', '.join(map(repr, extra[:3]))} is unknown{at}")
    made = {name: _fitted(one, hints[name], f"{where}.{name}") for name, one in value.items() if name in hints}
    return value if is_typeddict(kind) else kind(**made)


def _needed(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _refuse(where: str, wanted: str, value: Any) -> Any:
    found = repr(value)
    raise ValueError(f"{where.strip('.') or 'it'} must be {wanted}, and is {found[:60]}{'...' * (len(found) > 60)}")
