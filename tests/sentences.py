"""How a command that fails speaks: in sentences."""

from __future__ import annotations

from ctta.base.limits import LINE_LETTERS, PROBLEMS
from ctta.cli.failures import FIX, in_a_sentence


def said(what, capsys):
    """Call a function as a command is called; its result, the exit code and what was printed."""
    made, code = [], 0
    try:
        in_a_sentence(lambda: made.append(what()))()
    except Exception as end:
        code = end.exit_code
    shown = capsys.readouterr()
    return (made or [None])[0], code, shown.out + shown.err


def must_be_a_sentence(code, text, names=""):
    """The end of an attempt that was refused: it was expected, and it is said in a few lines of plain text."""
    assert code == FIX, (code, text)
    lines = text.strip("\n").split("\n")
    assert lines[0].startswith("error ")
    assert len(lines[0].split()) > 3
    assert len(lines) <= PROBLEMS + 2
    assert all(len(line) <= LINE_LETTERS + 10 for line in lines), max(map(len, lines))
    assert names in text
    assert "Traceback" not in text
    assert all(letter.isprintable() or letter in "\n\xa0" for letter in text), repr(text)
