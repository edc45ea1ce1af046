"""Pickles read as plain data: containers, texts, numbers, and what a table of names makes of the rest.

Nothing that a file names is imported or called: a name is looked up in the table, and only what was found there is
called. Nothing is built from a length before as many bytes were seen. Keys are texts and numbers, because the hash of a
tuple of tuples may take forever.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

from ctta.base.errors import InputError

SHOWN = 80  # characters of a name from the file
SINGLE = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
)


class ForeignNameError(InputError):
    """A pickle names a class or function that is no part of the data it should hold."""

    def __init__(self, name: str) -> None:
        self.name = ascii(name[:SHOWN])[1:-1]
        super().__init__(
            f"It asks for {self.name}, which is no part of such a file and could run code, so it was not loaded: take "
            "the file from the official page."
        )


class Inert:
    """Replaces what is of no interest: it takes any arguments and any state, and keeps nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


class Ordered(dict[Any, Any]):
    """Replaces collections.OrderedDict; its attributes are of no interest."""

    def __init__(self, pairs: Iterable[Any] = ()) -> None:
        super().__init__()
        _fill(self, [part for pair in pairs for part in pair])

    def __setstate__(self, state: object) -> None: ...


def read_pickle(file: IO[bytes], names: Mapping[str, Any], persistent: Callable[[Any], Any] | None = None) -> Any:
    """Return the next pickle of a file as plain data; `persistent` makes something of each persistent id.

    The file must be in memory or mapped: `read(n)` has to return what there is, not to prepare for n bytes.
    """
    stack: list[Any] = []
    outer: list[list[Any]] = []
    memo: dict[int, Any] = {}
    for opcode, arg, _ in pickletools.genops(file):
        name = opcode.name
        items: list[Any] = []
        if name in ("TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS"):
            items, stack = stack, outer.pop()
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "SETITEM", "REDUCE", "NEWOBJ", "STACK_GLOBAL"):
            count = int(name[-1]) if name[-1].isdigit() else 1 if name == "APPEND" else 2
            items, stack[-count:] = stack[-count:], []
            if len(items) < count:
                raise InputError("It takes more from its stack than it has put there.")
        match name:
            case "PROTO" | "FRAME":
                continue
            case "STOP":
                return stack.pop()
            case "MARK":
                outer.append(stack)
                stack = []
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append(SINGLE[name])
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(items))
            case "EMPTY_LIST" | "LIST":
                stack.append(items)
            case "EMPTY_DICT" | "DICT":
                stack.append(_fill({}, items))
            case "APPEND" | "APPENDS":
                _expect(stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                _fill(_expect(stack[-1], dict), items)
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[_expect(arg, int)] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[_expect(arg, int)])
            case "GLOBAL":
                stack.append(_named(".".join(_expect(arg, str).split(" ", 1)), names))
            case "STACK_GLOBAL":
                stack.append(_named(".".join(_expect(part, str) for part in items), names))
            case "REDUCE" | "NEWOBJ":
                function, arguments = items
                if not any(function is known for known in names.values()):
                    raise InputError("It calls what is no function.")
                stack.append(function(*_expect(arguments, tuple)))
            case "BUILD":
                state = stack.pop()
                stack[-1].__setstate__(state)
            case "BINPERSID" if persistent is not None:
                stack.append(persistent(stack.pop()))
            case _ if name in VALUES:
                stack.append(arg)
            case _:
                raise InputError(f"It holds the instruction {name}, which plain data do not need.")
    raise InputError("It has no end.")


def _named(name: str, names: Mapping[str, Any]) -> Any:
    if name not in names:
        raise ForeignNameError(name)
    return names[name]


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise InputError(f"It uses a value of type {type(value).__name__} as {kind.__name__}.")
    return value


def _fill(target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    """Add keys and values in turn."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | bytes | int | float | None):
            raise InputError(f"It uses a value of type {type(key).__name__} as a key.")
        target[key] = value
    return target
