"""Texts that come from outside, made fit to be shown: on one line, short, and without control characters."""

from __future__ import annotations

import reprlib
import unicodedata
from typing import Any

from ctta.base.limits import LINE_LETTERS, PROBLEMS, VALUE_LETTERS

SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
KEPT = "\u200c\u200d"  # joiners, without which some scripts cannot be written
FORMULA = ("=", "+", "-", "@")  # what makes a spreadsheet calculate a cell


def one_line(text: str) -> str:
    """The text without control characters: escapes, overrides of the direction, surrogates; line ends become spaces."""
    if text.isprintable():
        return text
    spaced = "".join(" " if letter in SPACES else letter for letter in text)
    return "".join(letter for letter in spaced if letter in KEPT or unicodedata.category(letter)[0] != "C")


def harmless(text: str) -> str:
    """The same with line ends as they are."""
    return "\n".join(map(one_line, text.split("\n")))


def message(text: str) -> str:
    """What an error says: harmless lines, each not too long, and not too many of them."""
    found = list(map(shorten, harmless(text).split("\n")))
    more = [f"... and {len(found) - PROBLEMS} more lines like these."] if len(found) > PROBLEMS else []
    return "\n".join(found[:PROBLEMS] + more)


def shorten(text: str, most: int = LINE_LETTERS) -> str:
    """The text with its middle left out if it is long."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 5]} ... {text[-end:]}"


class _Short(reprlib.Repr):
    """Spells huge and deep values without going through all of them."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 256 else f"a number of about {round(x.bit_length() * 0.30103):,} digits"


_short = _Short()
_short.maxlevel, _short.maxlist, _short.maxtuple, _short.maxdict = 3, 8, 8, 8
_short.maxstring = _short.maxother = VALUE_LETTERS


def quoted(value: Any) -> str:
    """A value as Python writes it, at most part of a line: the one way in which messages echo a value."""
    return shorten(one_line(_short.repr(value)), VALUE_LETTERS)


def failure(error: BaseException) -> str:
    """What an error of another package or of the user's own code says, on one line."""
    try:
        said = shorten(one_line(str(error).strip()), 2 * VALUE_LETTERS)
    except Exception:  # its own words can fail, too
        said = ""
    name = type(error).__name__
    return f"{name}: {said}" if said else name


def csv_cell(value: object) -> object:
    """A cell of a CSV file on one line; a text that a spreadsheet would calculate gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.lstrip().startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
