"""Ways to damage a file, as data: what a crash, a full disk, a bad cable or a hand with an editor leave behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
DEEP = b"[" * 100_000 + b"]" * 100_000
WRONG: list[Any] = [
    None,
    [],
    {},
    "x",
    -1,
    0,
    1.5,
    True,
    10**30,
    float("nan"),
    "\ud800",
    "../../x",
    [[]],
    [None],
    {"": {}},
]


def _write(content: bytes) -> Damage:
    return lambda path: void(path.write_bytes(content))


def _flip(share: float) -> Damage:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(share * (len(content) - 1))] ^= 1 << int(8 * share) % 8
        path.write_bytes(content)

    return flip


def _cut(share: float) -> Damage:
    return lambda path: void(path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)]))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "mine").touch()


def _loop(path: Path) -> None:
    """Nobody can read it, not even the superuser."""
    path.unlink()
    path.symlink_to(path.name)


def void(_: object) -> None:
    """So that a lambda returns nothing."""


FILES: dict[str, Damage] = {
    "empty": _write(b""),
    "missing": Path.unlink,
    "a folder": _folder,
    "a link to itself": _loop,
    "garbage": _write(bytes(range(256)) * 20),
    "zeros": _write(bytes(4096)),
    "line breaks": _write(b"\n\n\n"),
    "nested": _write(DEEP + b"\n"),
    **{f"is {text}": _write(text.encode() + b"\n") for text in ("[]", "{}", "5", "null", "NaN")},
    **{f"cut at {share:.0%}": _cut(share) for share in (0.2, 0.9, 0.999)},
    **{f"flipped at {share:.0%}": _flip(share) for share in (0.0, 0.23, 0.37, 0.61, 0.93, 1.0)},
}


def documents(data: Any) -> Iterator[tuple[str, Any]]:
    """Documents that are JSON, each wrong in one place: a key missing or extra, a value of another kind."""
    for path, _ in places(data):
        name = "/".join(map(str, path))
        for number, value in enumerate(WRONG):
            yield f"{name} is {WRONG[number]!r}", changed(data, path, lambda _, value=value: value)
        if isinstance(path[-1], str):
            yield f"{name} is missing", changed(data, path, None)
    for path, value in [((), data), *places(data)]:
        if isinstance(value, Mapping):
            yield f"{'/'.join(map(str, path))} has more", changed(data, (*path, "more"), lambda _: 1)


def places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value below the top, with its path; of lists only the first."""
    pairs = data.items() if isinstance(data, Mapping) else enumerate(data[:1]) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*above, key), value
        yield from places(value, (*above, key))


def changed(data: Any, path: tuple[Any, ...], change: Callable[[Any], Any] | None) -> Any:
    """A copy with one value changed, or left out."""
    made = json.loads(json.dumps(data))
    *above, last = path
    at = made
    for key in above:
        at = at[key]
    if change is None:
        del at[last]
    else:
        at[last] = change(at.get(last) if isinstance(at, dict) else at[last])
    return made


def copy(source: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(source, to, symlinks=True))
