"""A cell's files on their way between machines that share no disk.

The job goes out with what the run folder holds of the cell. A worker runs it in a folder of its own and sends back what
was written, piece by piece; the receiving side writes it into the run folder in the order that keeps it whole: records
first, the mark of completeness last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ctta.base.fileio import write_atomically
from ctta.records.run_folder import RunFolder


@dataclass(frozen=True)
class Parcel:
    """What was written since the last one, and how far the cell is."""

    done: int = 0  # batches
    domain: str = ""
    start: int = 0  # where the lines begin in the file of records
    lines: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    over: bool = False
    error: str = ""


def contents(folder: Path, cell: str) -> dict[str, bytes]:
    """The files that a cell starts from."""
    names = ("run.json", RunFolder(folder).records_path(cell).name, *_others(cell))
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def unpack(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)


class Outbox:
    """Tells what a cell has written since it was last asked."""

    def __init__(self, folder: Path, cell: str) -> None:
        self._folder, self._others = folder, _others(cell)
        self._records = RunFolder(folder).records_path(cell)
        before = self._records.read_bytes() if self._records.is_file() else b""
        self._sent = before.rfind(b"\n") + 1  # a line that was cut short is taken off
        self._times = self._now()

    def parcel(self, done: int, domain: str, *, over: bool = False) -> Parcel:
        with self._records.open("rb") as file:
            file.seek(self._sent)
            lines = file.read()
        times = self._now()
        changed = [name for name, when in times.items() if self._times.get(name) != when]
        files = {name: (self._folder / name).read_bytes() for name in changed}
        start, self._sent, self._times = self._sent, self._sent + len(lines), times
        return Parcel(done, domain, start, lines, files, over)

    def _now(self) -> dict[str, int]:
        paths = {name: self._folder / name for name in self._others}
        return {name: path.stat().st_mtime_ns for name, path in paths.items() if path.is_file()}


def deliver(folder: Path, cell: str, parcel: Parcel) -> None:
    """Write a parcel into the run folder."""
    if parcel.lines:
        path = RunFolder(folder).records_path(cell)
        path.touch()
        with path.open("r+b") as file:
            file.truncate(parcel.start)
            file.seek(parcel.start)
            file.write(parcel.lines)
    unpack(folder, {name: parcel.files[name] for name in _others(cell) if name in parcel.files})
    if parcel.over and not parcel.error:
        (folder / _checkpoint(cell)).unlink(missing_ok=True)


def _others(cell: str) -> tuple[str, ...]:
    """Files that are written whole, the mark of completeness last."""
    return (f"{cell}.samples.npz", _checkpoint(cell), f"{cell}.done.json")


def _checkpoint(cell: str) -> str:
    return f"checkpoints/{cell}.pt"
