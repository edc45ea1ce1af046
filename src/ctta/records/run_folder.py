"""What a run leaves behind, as plain data: tables and reports read this and never live objects.

    run.json             what was run: experiment, stream, method runs, environment (see `Run`)
    <run>.jsonl         one line per batch, appended and flushed as it is computed (see `Record`)
    <run>.samples.npz   a few images per domain with the predictions before and after adaptation (see `Samples`)
    <run>.done.json     written last: the method run is complete (see `Done`)
    checkpoints/         only while a method run goes on: the state of its adapter

A cell is a method run: one method with one seed and one configuration over the whole stream.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import StateError
from ctta.base.fileio import make_folder, write_atomically

BINS = 15  # equal-width confidence bins for calibration


@dataclass(frozen=True)
class Record:
    """One batch of one method run."""

    method: str
    seed: int
    step: int  # 0, 1, 2 ... along the stream
    domain: str
    severity: int
    n: int  # samples in the batch
    wrong: int  # -1 if labels are not known
    seconds: float  # of step(x) only
    info: Mapping[str, float]  # loss, confidence, threshold, selected, views, skipped, forwards, backwards
    position: int = 0  # which domain of the stream, 0, 1, 2 ...; a name may come again
    selected: int | None = None  # how many samples were selected; None if the method selects nothing
    selected_wrong: int | None = None  # -1 if labels are not known
    bins: tuple[tuple[int, float, int], ...] = ()  # per confidence bin: samples, sum of confidence, correct
    # At the end of a segment, on request: clean samples evaluated, wrong predictions, those of the unadapted model.
    clean: tuple[int, int, int] | None = None

    def same(self, other: Record) -> bool:
        """Whether all but the times are equal."""
        return {**asdict(self), "seconds": 0} == {**asdict(other), "seconds": 0}


@dataclass(frozen=True)
class Cell:
    """One method with one seed and one configuration."""

    cell: str  # its name, also of its files: "dss-s0"
    method: str
    label: str  # what tables call it: "DSS"; runs that differ only in the seed share it
    seed: int
    preset: str
    config: Mapping[str, Any]
    traits: Mapping[str, Any] = field(default_factory=dict)  # what the method needs and costs; empty in old folders


@dataclass(frozen=True)
class Run:
    """The head of a run folder."""

    name: str
    identity: str  # hash of the resolved experiment
    experiment: Mapping[str, Any]
    # dataset, domains [[name, severity] ...], images (None if domains differ in size), batch, boundaries, protocol
    # (kind and settings), classes, files (hashes), source_check
    stream: Mapping[str, Any]
    cells: tuple[Cell, ...]
    environment: Mapping[str, Any]
    command: str = ""
    notes: tuple[str, ...] = ()  # sentences to show with the numbers


@dataclass(frozen=True)
class Done:
    """The mark of a complete method run."""

    batches: int
    n: int
    wrong: int  # -1 if labels are not known
    seconds: float
    peak_memory: float  # MB above the process without the adapter
    valid: bool = True
    problems: tuple[str, ...] = ()


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


def parse_record(line: str | bytes) -> Record:
    """One line of a records file."""
    data = json.loads(line)
    clean = data.get("clean")
    return Record(**{**data, "bins": tuple(map(tuple, data["bins"])), "clean": clean and tuple(clean)})


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def write_run(self, run: Run) -> None:
        make_folder(self.path)
        write_atomically(self.path / "run.json", json.dumps(asdict(run), indent=1).encode())

    def run(self) -> Run:
        path = self.path / "run.json"
        if not path.is_file():
            raise StateError(f"{self.path} is not a run folder: it has no run.json. Give the folder that a run wrote.")
        data = json.loads(path.read_text())
        cells = tuple(Cell(**cell) for cell in data.pop("cells"))
        return Run(**{**data, "cells": cells, "notes": tuple(data["notes"])})

    def records_path(self, cell: str) -> Path:
        return self.path / f"{cell}.jsonl"

    def samples_path(self, cell: str) -> Path:
        return self.path / f"{cell}.samples.npz"

    def done_path(self, cell: str) -> Path:
        return self.path / f"{cell}.done.json"

    def checkpoint_path(self, cell: str) -> Path:
        return self.path / "checkpoints" / f"{cell}.pt"

    def records(self, cell: str) -> Iterator[Record]:
        """The complete lines; one that a crash cut short is left out."""
        path = self.records_path(cell)
        for line in path.read_text().splitlines(keepends=True) if path.is_file() else ():
            if line.endswith("\n"):
                yield parse_record(line)

    def write_samples(self, cell: str, samples: Samples) -> None:
        content = io.BytesIO()
        np.savez_compressed(content, **asdict(samples))
        write_atomically(self.samples_path(cell), content.getvalue())

    def samples(self, cell: str) -> Samples | None:
        path = self.samples_path(cell)
        if not path.is_file():
            return None
        with np.load(path) as stored:
            return Samples(**stored)

    def write_done(self, cell: str, done: Done) -> None:
        write_atomically(self.done_path(cell), json.dumps(asdict(done)).encode())

    def done(self, cell: str) -> Done | None:
        path = self.done_path(cell)
        if not path.is_file():
            return None
        data = json.loads(path.read_text())
        return Done(**{**data, "problems": tuple(data["problems"])})
