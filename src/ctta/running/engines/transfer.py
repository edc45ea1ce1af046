"""The files of a method run on their way between machines that share no disk.

A worker runs a job in a folder of its own and sends back what was written, update by update, in the order that keeps
the run folder whole: records first, the mark of completeness last.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ctta.base.fileio import Appender, write_atomically, writing
from ctta.records.run_folder import RunFolder


@dataclass(frozen=True)
class RunUpdate:
    """What was written since the last update."""

    start: int = 0  # where the lines begin in the file of records
    lines: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)


def read_files(folder: Path, cell: str) -> dict[str, bytes]:
    """Read the files that a method run starts from."""
    names = ("run.json", RunFolder(folder).records_path(cell).name, *_whole_files(cell))
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, each as a whole."""
    for name, content in files.items():
        write_atomically(folder / name, content)


class UpdateReader:
    """Reads what a method run has written since it was last read."""

    def __init__(self, folder: Path, cell: str) -> None:
        self._folder, self._names = folder, _whole_files(cell)
        self._records = RunFolder(folder).records_path(cell)
        self._records.touch()
        self._sent = self._records.read_bytes().rfind(b"\n") + 1  # a line that was cut short is taken off
        self._times = self._now()

    def read(self) -> RunUpdate:
        with self._records.open("rb") as file:
            file.seek(self._sent)
            lines = file.read()
        times = self._now()
        changed = [name for name, when in times.items() if self._times.get(name) != when]
        files = {name: (self._folder / name).read_bytes() for name in changed}
        start, self._sent, self._times = self._sent, self._sent + len(lines), times
        return RunUpdate(start, lines, files)

    def _now(self) -> dict[str, int]:
        paths = {name: self._folder / name for name in self._names}
        return {name: path.stat().st_mtime_ns for name, path in paths.items() if path.is_file()}


def apply_update(folder: Path, cell: str, update: RunUpdate) -> None:
    """Write an update into the run folder."""
    if update.lines:
        path = RunFolder(folder).records_path(cell)
        with writing(path):
            path.touch()
            os.truncate(path, update.start)
        with Appender(path) as file:
            file.write(update.lines)
            file.flush_to_disk()
    write_files(folder, {name: update.files[name] for name in _whole_files(cell) if name in update.files})
    if RunFolder(folder).done_path(cell).name in update.files:
        RunFolder(folder).checkpoint_path(cell).unlink(missing_ok=True)


def _whole_files(cell: str) -> tuple[str, ...]:
    """Names of the files that are written as a whole, the mark of completeness last."""
    folder = RunFolder("")
    return tuple(map(str, (folder.samples_path(cell), folder.checkpoint_path(cell), folder.done_path(cell))))
