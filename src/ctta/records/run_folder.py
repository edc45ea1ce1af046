"""What a run leaves behind, as plain data: tables and reports read this and never live objects.

    run.json             what was run: experiment, stream, method runs, environment (see `Run`)
    <run>.jsonl          one line per batch, appended and flushed as it is computed (see `Record`)
    <run>.samples.npz    a few images per domain with the predictions before and after adaptation (see `Samples`)
    <run>.done.json      written last: the method run is complete (see `Done`)
    checkpoints/         only while a method run goes on: the state of its adapter
    .lock                only while somebody writes: who it is (see `ctta.base.lock`)
    .<run>.jsonl.lock    only while this method run goes on, in whatever process

A cell is a method run: one method with one seed and one configuration over the whole stream.

Lock. One process at a time runs methods in a folder (that of a sweep, for all its points). A second one is told who is
there. A process that was killed leaves the file behind, and the next one takes it over with a word. A worker holds the
lock of its method run as well, since it can outlive a killed parent by a moment. Reading needs no lock.

Checksums. The mark of completeness has the number of records and the SHA-256 of their file, which is on the disk before
the mark is written. A mark that does not fit its records counts for nothing: a report shows the method run as
incomplete, a run computes it again. Marks of earlier versions have no checksum; of these only the number is compared. A
checkpoint carries its own checksum and that of the records before it; if either does not fit, the method run begins
again, and what is computed must equal the records that are there.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, StateError
from ctta.base.fileio import make_folder, safe_name, write_atomically
from ctta.base.schema import Natural, Positive, parse_json, read_json
from ctta.records.heads import ExperimentHead, StreamHead, TraitsHead

BINS = 15  # equal-width confidence bins for calibration
HEAD_REMEDY = "Restore it from a copy, or remove the folder and run again."
MARK_REMEDY = "It counts for nothing."


Unknown = Annotated[int, -1]  # a number, or -1 if it is not known


@dataclass(frozen=True)
class Record:
    """One batch of one method run."""

    method: str
    seed: int
    step: Natural  # 0, 1, 2 ... along the stream
    domain: str
    severity: int
    n: Positive  # samples in the batch
    wrong: Unknown  # of those that are scored; -1 if there are none
    seconds: Annotated[float, 0]  # of step(x) only
    info: Mapping[str, float]  # loss, confidence, threshold, selected, views, skipped, forwards, backwards
    position: Natural = 0  # which domain of the stream, 0, 1, 2 ...; a name may come again
    selected: Natural | None = None  # how many samples were selected; None if the method selects nothing
    selected_wrong: Unknown | None = None  # of those that are scored; -1 if there are none
    bins: tuple[tuple[Natural, float, Natural], ...] = ()  # per confidence bin: samples, sum of confidence, correct
    # At the end of a segment, on request: clean samples evaluated, wrong predictions, those of the unadapted model.
    clean: tuple[Positive, Natural, Natural] | None = None
    labelled: Natural | None = None  # samples with a label, if others of the batch have none

    @property
    def scored(self) -> int:
        """How many samples count in the error: those with a label."""
        return 0 if self.wrong < 0 else self.n if self.labelled is None else self.labelled

    def same(self, other: Record) -> bool:
        """Whether all but the times are equal; as text, since a value that is no number differs from itself."""
        return json.dumps({**asdict(self), "seconds": 0}) == json.dumps({**asdict(other), "seconds": 0})

    @property
    def line(self) -> bytes:
        """What the file has of it."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def not_finite(self) -> list[str]:
        """Names of values that are not finite."""
        found = [name for name, value in self.info.items() if not math.isfinite(value)]
        return found + ["calibration"] * (not all(math.isfinite(total) for _, total, _ in self.bins))


@dataclass(frozen=True)
class WrittenRecords:
    """The records of a file, up to the first line that is damaged."""

    records: tuple[Record, ...] = ()
    lines: tuple[bytes, ...] = ()  # their text
    problem: str = ""  # what is wrong with the line after them; one that a crash cut short is no problem

    @property
    def size(self) -> int:
        """Bytes that they take."""
        return sum(map(len, self.lines))

    def sha256(self, count: int) -> Any:
        """The checksum of the first lines, to which more can be added."""
        return hashlib.sha256(b"".join(self.lines[:count]))

    def first(self, count: int, problem: str) -> WrittenRecords:
        """The first of them; `problem` is what is wrong with the others."""
        return WrittenRecords(self.records[:count], self.lines[:count], problem)


@dataclass(frozen=True)
class Cell:
    """One method with one seed and one configuration."""

    cell: str  # its name, also of its files: "dss-s0"
    method: str
    label: str  # what tables call it: "DSS"; runs that differ only in the seed share it
    seed: int
    preset: str
    config: Mapping[str, Any]
    traits: Annotated[Mapping[str, Any], TraitsHead] = field(default_factory=dict)  # empty in old folders
    guard: bool = False  # whether a guard watched the adapter


@dataclass(frozen=True)
class GuardEvent:
    """Something that a guard did or told."""

    batch: Natural
    kind: str  # roll-back, frozen, lost, changed or blank
    words: str


@dataclass(frozen=True)
class Run:
    """The head of a run folder."""

    name: str
    identity: str  # hash of the resolved experiment
    experiment: Annotated[Mapping[str, Any], ExperimentHead]
    stream: Annotated[Mapping[str, Any], StreamHead]
    cells: tuple[Cell, ...]
    environment: Mapping[str, Any]
    command: str = ""
    notes: tuple[str, ...] = ()  # sentences to show with the numbers
    events: tuple[GuardEvent, ...] = ()  # of an adaptation without labels; empty for other runs


@dataclass(frozen=True)
class Done:
    """The mark of a complete method run."""

    batches: Natural
    n: Natural
    wrong: int  # -1 if labels are not known
    seconds: float
    peak_memory: float  # MB above the process without the adapter
    valid: bool = True
    problems: tuple[str, ...] = ()
    records_sha256: str = ""  # of the records file; empty in old folders
    own_sha256: str = ""  # of all other fields, as the file has them; empty in old folders

    def signed(self) -> Done:
        """The same with its own checksum."""
        unsigned = replace(self, own_sha256="")
        return replace(self, own_sha256=hashlib.sha256(json.dumps(asdict(unsigned)).encode()).hexdigest())

    def misfit(self, content: bytes, path: Path) -> str:
        """Why the records file, of this content, is not the one that was marked; empty if it is."""
        lines = content.count(b"\n")
        if lines != self.batches:
            return f"{path} has {lines} records, and its mark of completeness says {self.batches}."
        if self.records_sha256 and hashlib.sha256(content).hexdigest() != self.records_sha256:
            return f"{path} has changed since it was complete: its checksum differs from the one in its mark."
        return ""


@dataclass(frozen=True)
class Samples:
    """A few images of every domain, M in all, with the predictions for them."""

    images: NDArray[np.uint8]  # (M, H, W, 3)
    position: NDArray[np.int64]  # (M,): which domain of the stream
    label: NDArray[np.int64]
    source: NDArray[np.int64]  # the unadapted model's prediction
    adapted: NDArray[np.int64]  # the adapter's
    confidence: NDArray[np.float64]
    selected: NDArray[np.int64]  # 1 selected, 0 not, -1 if the method selects nothing
    name: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, np.str_))  # of their files; empty if not known

    def __post_init__(self) -> None:
        count = len(self.position)
        if self.images.dtype != np.uint8 or self.images.shape != (count, *self.images.shape[1:3], 3):
            raise ValueError(f"images are {self.images.dtype} {self.images.shape}")
        for name in ("position", "label", "source", "adapted", "selected", "confidence"):
            values = getattr(self, name)
            if values.shape != (count,) or values.dtype.kind not in ("if" if name == "confidence" else "i"):
                raise ValueError(f"{name} is {values.dtype} {values.shape}")
        if self.name.dtype.kind != "U" or self.name.shape not in ((0,), (count,)):
            raise ValueError(f"name is {self.name.dtype} {self.name.shape}")


def parse_records(content: bytes, path: Path, domains: int | None = None) -> WrittenRecords:
    """Read the complete lines of a records file, up to one that is damaged; `domains`: how many the stream has."""
    records: list[Record] = []
    lines = [line + b"\n" for line in content.split(b"\n")[:-1]]
    for line in lines:
        try:
            record = parse_json(line, Record)
            if records and record.step <= records[-1].step:
                raise ValueError(f"batch {record.step} comes after batch {records[-1].step}")
            counted = max(record.scored, record.selected or 0, record.selected_wrong or 0)
            if counted > record.n or record.wrong > record.scored:
                raise ValueError(f"it counts more than its {record.n} samples")
            if domains is not None and record.position >= domains:
                raise ValueError(f"it is of domain {record.position}, and there are {domains}")
        except ValueError as error:
            problem = f"Line {len(records) + 1} of {path} is damaged: {error}."
            return WrittenRecords(tuple(records), tuple(lines[: len(records)]), problem)
        records.append(record)
    return WrittenRecords(tuple(records), tuple(lines))


def check_names(path: Path, names: Sequence[str]) -> None:
    """Check that the names in a head can be those of files in its folder, each its own."""
    try:
        for name in names:
            safe_name(name)
    except ConfigError as error:
        raise StateError(f"{path} is damaged: {error} {HEAD_REMEDY}") from error
    if len(set(names)) < len(names):
        raise StateError(f"{path} is damaged: two method runs have one name. {HEAD_REMEDY}")


def problems_of(records: Iterable[Record]) -> tuple[str, ...]:
    """Why the numbers of a method run are not to be trusted, as far as its records say."""
    found = [(record.step, names) for record in records if (names := record.not_finite())]
    if not found:
        return ()
    all_names = ", ".join(dict.fromkeys(name for _, names in found for name in names))
    return (f"{len(found)} batches have values that are not finite ({all_names}); the first is batch {found[0][0]}.",)


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def write_run(self, run: Run) -> None:
        make_folder(self.path)
        write_atomically(self.path / "run.json", json.dumps(asdict(run), indent=1).encode())

    def run(self) -> Run:
        path = self.path / "run.json"
        if not path.exists():
            raise StateError(f"{self.path} is not a run folder: it has no run.json. Give the folder that a run wrote.")
        run = read_json(path, Run, HEAD_REMEDY)
        check_names(path, [cell.cell for cell in run.cells])
        if not run.stream["domains"]:
            raise StateError(f"{path} is damaged: its stream has no domains. {HEAD_REMEDY}")
        return run

    def remove(self) -> None:
        """Remove the run; what else is in the folder stays."""
        for cell in self.run().cells:
            for path in (self.done_path, self.records_path, self.samples_path, self.checkpoint_path):
                path(cell.cell).unlink(missing_ok=True)
        (self.path / "run.json").unlink()

    def begun(self) -> bool:
        """Whether there is a head, or what only a run with a head can have left behind."""
        return any(True for name in ("run.json", "*.done.json", "*.jsonl") for _ in self.path.glob(name))

    def records_path(self, cell: str) -> Path:
        return self.path / f"{safe_name(cell)}.jsonl"

    def samples_path(self, cell: str) -> Path:
        return self.path / f"{safe_name(cell)}.samples.npz"

    def done_path(self, cell: str) -> Path:
        return self.path / f"{safe_name(cell)}.done.json"

    def checkpoint_path(self, cell: str) -> Path:
        return self.path / "checkpoints" / f"{safe_name(cell)}.safetensors"

    def records_content(self, cell: str) -> bytes:
        """The bytes of the records file; none if there is none."""
        path = self.records_path(cell)
        try:
            return path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror or error}. Move it away.") from error

    def written(self, cell: str) -> WrittenRecords:
        """The records, and what is wrong with the rest of their file."""
        return parse_records(self.records_content(cell), self.records_path(cell))

    def records(self, cell: str) -> tuple[Record, ...]:
        """The records, up to a line that is damaged or that a crash cut short."""
        return self.written(cell).records

    def write_samples(self, cell: str, samples: Samples) -> None:
        content = io.BytesIO()
        np.savez_compressed(content, **asdict(samples))
        write_atomically(self.samples_path(cell), content.getvalue())

    def samples(self, cell: str) -> Samples | None:
        path = self.samples_path(cell)
        if not path.exists():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes())) as stored:
                return Samples(**stored)
        except Exception as error:  # a damaged archive fails in as many ways as it has layers
            name = type(error).__name__
            raise StateError(f"{path} is damaged ({name}). Remove it; the numbers do not need it.") from error

    def write_done(self, cell: str, done: Done) -> None:
        write_atomically(self.done_path(cell), json.dumps(asdict(done.signed())).encode())

    def done(self, cell: str) -> Done | None:
        """The mark as it is written; `complete` compares it with the records."""
        path = self.done_path(cell)
        done = read_json(path, Done, MARK_REMEDY) if path.exists() else None
        if done is not None and done.own_sha256 and done != done.signed():
            raise StateError(f"{path} is damaged: its checksum does not match. {MARK_REMEDY}")
        return done and replace(done, own_sha256="")

    def complete(self, cell: str) -> Done | None:
        """The mark of a method run that is complete; one that does not fit its records is an error."""
        done = self.done(cell)
        if done is not None and (misfit := done.misfit(self.records_content(cell), self.records_path(cell))):
            raise StateError(misfit)
        return done
