"""How docstrings become Markdown: lines of a name, some space and what it means are a list."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ENTRY = re.compile(r"(\w+) {2,}(\S.*)")


def as_markdown(text: str) -> str:
    """A docstring whose lines 'name   meaning', not indented, are a list; what is indented stays as it is."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if entry := ENTRY.fullmatch(line):
            lines += ([] if inside else [""]) + [f"- `{entry[1]}`: {entry[2]}"]
            inside = True
        elif inside and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)


class Docstrings(Extension):
    """Applied to every docstring that is shown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
