"""The contents of a run folder, read once. Tables, comparison, page and trackers take all their numbers from here.

`Results.load` reads run.json, the records and the marks of complete method runs; the page reads saved samples when it
needs them. `results.newer()` reads only what was appended since. A sweep is one `Results` per point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ctta.base.errors import StateError
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder, parse_records, problems_of

INCOMPLETE = "It is shown as incomplete; `ctta run` computes it again."
FORMER_WORDS = {"told": "known", "hidden": "unknown"}  # how older folders describe domain boundaries


@dataclass(frozen=True)
class MethodRun:
    """One method with one seed: its records so far and, once it is complete, its mark."""

    cell: Cell
    records: tuple[Record, ...] = ()
    done: Done | None = None
    size: int = 0  # bytes of the records file that were read
    problem: str = ""  # what is damaged; it is not complete then


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
        found = tuple(_read(folder, MethodRun(cell), len(run.stream["domains"])) for cell in run.cells)
        damage = [one.problem for one in found if one.problem]
        return cls(folder, replace(run, notes=(*run.notes, *damage)), found)

    def newer(self) -> Results:
        """The same with what was appended since; a method run without news is the same object."""
        domains = len(self.run.stream["domains"])
        return replace(self, method_runs=tuple(_read(self.folder, one, domains) for one in self.method_runs))

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


def _read(folder: RunFolder, before: MethodRun, domains: int) -> MethodRun:
    if before.done is not None or before.problem:
        return before
    path = folder.records_path(before.cell.cell)
    try:
        done = folder.done(before.cell.cell)  # read first: if it is there, all records are
        size = path.stat().st_size if path.exists() else 0
        if done is None and size == before.size:
            return before
        start = 0 if done else max(before.size - 1, 0)  # the checksum in the mark is that of the whole file
        content = _bytes(path, start) if size else b""
    except StateError as error:
        return replace(before, problem=f"{error} {INCOMPLETE}")
    last = before.records[-1].step if before.records else -1
    new = parse_records(content[1:], path, domains) if start and content[:1] == b"\n" else None
    if new is None or new.problem or (new.records and new.records[0].step != last + 1):
        # All of it: nothing was read before, or the run went back to its last checkpoint and wrote from there.
        content = _bytes(path, 0) if start else content
        before, new = MethodRun(before.cell), parse_records(content, path, domains)
    if problem := new.problem or (done.misfit(content, path) if done else ""):
        return replace(before, records=before.records + new.records, problem=f"{problem} {INCOMPLETE}")
    if done and (problems := problems_of(new.records)) and done.valid:  # as an earlier version left it
        done = replace(done, valid=False, problems=problems)
    return replace(before, records=before.records + new.records, done=done, size=before.size + new.size)


def _bytes(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}.") from error
