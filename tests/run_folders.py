"""Run folders in tests: filled by a run, compared, and written with given numbers of wrong predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ctta import CttaError
from ctta.experiments.experiment import Experiment
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder
from ctta.report.results import Results
from ctta.report.tables import errors
from ctta.running.engines import Event, Inline
from ctta.running.run import run


def execute(experiment: Experiment, folder: RunFolder, *, checkpoint_seconds: float = 30.0) -> Iterator[Event]:
    """Run an experiment in this process; yields after every batch. A failure is raised at the end."""
    status = None
    for status in run(experiment, folder.path, Inline(checkpoint_seconds)):
        if status.last is not None and not status.last.over:
            yield status.last
    if status.failures:
        raise CttaError("\n".join(event.error for event in status.failures))


def cells(folder: RunFolder) -> list[str]:
    return [cell.cell for cell in folder.run().cells]


def assert_same_runs(left: RunFolder, right: RunFolder) -> None:
    for cell in cells(left):
        one, two = list(left.records(cell)), list(right.records(cell))
        assert len(one) == len(two)
        assert all(a.same(b) for a, b in zip(one, two, strict=True)), cell
        done_left, done_right = left.done(cell), right.done(cell)
        assert (done_left.n, done_left.wrong) == (done_right.n, done_right.wrong)
        for name, values in vars(left.samples(cell)).items():
            assert np.array_equal(values, getattr(right.samples(cell), name)), (cell, name)


class TinyRun:
    """Writes cells whose wrong answers are given, batch by batch."""

    def __init__(
        self,
        path: Path,
        domains: Sequence[tuple[str, int]] = (("gaussian_noise", 5), ("fog", 5)),
        protocol: Mapping[str, Any] | None = None,
        images: int | None = 20,
    ) -> None:
        self.folder = RunFolder(path)
        self.stream = {"dataset": "tiny-c", "images": images, "batch": 10, "boundaries": "known"}
        self.stream |= {"protocol": protocol} if protocol else {}
        self.domains = domains
        self.cells: list[Cell] = []

    def add(
        self,
        method: str,
        wrong: Sequence[int],
        *,
        seed: int = 0,
        label: str = "",
        done: bool = True,
        problem: str = "",
        source: str = "",
    ) -> TinyRun:
        traits = {"source": source} if source else {}
        cell = Cell(f"{method}-s{seed}", method, label or method.upper(), seed, "", {}, traits)
        self.cells.append(cell)
        stream = self.stream | {"domains": [list(domain) for domain in self.domains]}
        self.folder.write_run(Run("tiny", "abc", {}, stream, tuple(self.cells), {}))
        records = [self._record(cell, step, count) for step, count in enumerate(wrong)]
        self.folder.records_path(cell.cell).write_text("".join(json.dumps(asdict(r)) + "\n" for r in records))
        if done:
            problems = (problem,) if problem else ()
            total = sum(wrong)
            self.folder.write_done(
                cell.cell, Done(len(wrong), 10 * len(wrong), total, 1.0, 64.0, not problem, problems)
            )
        return self

    def _record(self, cell: Cell, step: int, wrong: int) -> Record:
        name, severity = self.domains[step // 2]
        info = {"views": 4.0, "forwards": 6.0, "backwards": 1.0}
        return Record(cell.method, cell.seed, step, name, severity, 10, wrong, 0.5, info, position=step // 2)

    def table(self) -> errors.ErrorTable:
        return errors.build(Results.load(self.folder))
