"""The folder of a sweep: its axes and points, and one run folder per point.

sweep.json       axes and points (see `Head`)
points/<slug>/   one run folder per point
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ctta.base.errors import StateError
from ctta.base.fileio import make_folder, safe_name, write_atomically
from ctta.base.schema import read_json
from ctta.records.run_folder import HEAD_REMEDY, RunFolder, check_names

SHORT = 32  # letters of a value that a table shows; longer ones go by their number on the axis


@dataclass(frozen=True)
class Head:
    """The head of a sweep's folder."""

    name: str
    axes: Mapping[str, Sequence[Any]]
    over: tuple[str, ...]  # axes that are averaged
    points: Mapping[str, Mapping[str, Any]]  # by the name of its folder: its value on each axis
    command: str = ""


class SweepFolder:
    """Reads and writes the folder of a sweep."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @staticmethod
    def home(path: Path) -> Path:
        """The folder itself, or that of the sweep whose point it is: one lock serves all points."""
        sweep = path.absolute().parent.parent
        return sweep if path.absolute().parent.name == "points" and SweepFolder(sweep).is_one() else path

    def is_one(self) -> bool:
        return (self.path / "sweep.json").exists()

    def write(self, head: Head) -> None:
        """Write the head; a grid that has grown keeps the points that are there."""
        if RunFolder(self.path).begun():
            raise StateError(f"{self.path} holds a single run, and a sweep has a folder for each. Give another --out.")
        make_folder(self.path)
        write_atomically(self.path / "sweep.json", json.dumps(asdict(head), indent=1).encode())

    def head(self) -> Head:
        head = read_json(self.path / "sweep.json", Head, HEAD_REMEDY)
        check_names(self.path / "sweep.json", list(head.points))
        known = {axis: [text(value) for value in values] for axis, values in head.axes.items()}
        for slug, at in head.points.items():
            if known.keys() != at.keys() or any(text(value) not in known[axis] for axis, value in at.items()):
                raise StateError(f"{self.path / 'sweep.json'} is damaged: {slug} is not on its axes. {HEAD_REMEDY}")
        if unknown := [axis for axis in head.over if axis not in known]:
            raise StateError(f"{self.path / 'sweep.json'} is damaged: {unknown[0]!r} is no axis. {HEAD_REMEDY}")
        return head

    def point(self, slug: str) -> RunFolder:
        return RunFolder(self.path / "points" / safe_name(slug))

    def begun(self, head: Head) -> dict[str, RunFolder]:
        """The points that have a run folder."""
        points = {slug: self.point(slug) for slug in head.points}
        return {slug: folder for slug, folder in points.items() if folder.begun()}


def text(value: Any) -> str:
    """A value in words, unabridged; lists as JSON."""
    if isinstance(value, Mapping):  # {"kind": "recurring", "rounds": 3}: recurring, rounds 3
        return ", ".join(text(one) if name == "kind" else f"{name} {text(one)}" for name, one in value.items())
    return value if isinstance(value, str) else json.dumps(value, default=str)


def shown(values: Sequence[Any], value: Any) -> str:
    """A value as a table shows it: in words, or by its number on the axis if they are long."""
    said = text(value)
    return said if len(said) <= SHORT else f"#{[text(one) for one in values].index(said) + 1}"


def heads(axes: Iterable[str]) -> dict[str, str]:
    """The short name of each axis: its field, unless two have the same."""
    names = list(axes)
    last = [name.rpartition(".")[2] for name in names]
    return {name: short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)}
