"""The contents of a run folder, read once. Tables, comparison, page and trackers take all their numbers from here.

`Results.load` reads run.json, the records and the marks of complete method runs; the page reads saved samples when it
needs them. `results.newer()` reads only what was appended since. A sweep is one `Results` per point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder, parse_record

FORMER_WORDS = {"told": "known", "hidden": "unknown"}  # how older folders describe domain boundaries


@dataclass(frozen=True)
class MethodRun:
    """One method with one seed: its records so far and, once it is complete, its mark."""

    cell: Cell
    records: tuple[Record, ...] = ()
    done: Done | None = None
    size: int = 0  # bytes of the records file that were read


@dataclass(frozen=True)
class Results:
    """What a run has left behind, whether it is complete or not."""

    folder: RunFolder
    run: Run
    method_runs: tuple[MethodRun, ...]

    @classmethod
    def load(cls, folder: RunFolder | Path | str) -> Results:
        """Read a run folder."""
        folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
        run = folder.run()
        return cls(folder, run, tuple(_read(folder, MethodRun(cell)) for cell in run.cells))

    def newer(self) -> Results:
        """The same with what was appended since; a method run without news is the same object."""
        return replace(self, method_runs=tuple(_read(self.folder, one) for one in self.method_runs))

    def by_label(self) -> dict[str, list[MethodRun]]:
        """Method runs by the name that tables show; those that differ only in the seed share it."""
        groups: dict[str, list[MethodRun]] = {}
        for one in self.method_runs:
            groups.setdefault(one.cell.label, []).append(one)
        return groups

    @property
    def boundaries(self) -> str:
        """Domain boundaries are known, unknown or detected."""
        stored = str(self.run.stream.get("boundaries", "unknown"))
        return FORMER_WORDS.get(stored, stored)


def _read(folder: RunFolder, before: MethodRun) -> MethodRun:
    if before.done is not None:
        return before
    done = folder.done(before.cell.cell)  # read first: if it is there, all records are
    path = folder.records_path(before.cell.cell)
    if (path.stat().st_size if path.is_file() else 0) == before.size:
        return before if done is None else replace(before, done=done)
    with path.open("rb") as file:
        file.seek(max(before.size - 1, 0))
        goes_on = before.size == 0 or file.read(1) == b"\n"
        new, size = _parse(file.read()) if goes_on else ((), 0)
        if not goes_on or (before.records and new and new[0].step != before.records[-1].step + 1):
            file.seek(0)  # the run went back to its last checkpoint and wrote from there
            before = MethodRun(before.cell)
            new, size = _parse(file.read())
    return replace(before, records=before.records + new, done=done, size=before.size + size)


def _parse(content: bytes) -> tuple[tuple[Record, ...], int]:
    """Records of all complete lines, and the bytes these take; a line that a crash cut short is left out."""
    size = content.rfind(b"\n") + 1
    return tuple(map(parse_record, content[:size].splitlines())), size
