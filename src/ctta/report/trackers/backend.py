"""What a tracker is, and what is written to it.

One tracked run is a method run: one method with one seed. Its metrics, each with its step:

    batch/...    a batch's error and running error (over all samples so far) in percent, the percentage selected,
                 seconds, and what the method reports: confidence, threshold, views, loss ...
    domain/...   the error of each domain in percent, once the method run is complete
    final/...    error, seconds, MB at the peak, and 1 if the numbers are valid, else 0
"""

from __future__ import annotations

import json
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctta.base.fileio import optional_import
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder
from ctta.report.metrics import total_error

Rows = Sequence[tuple[int, Mapping[str, float]]]  # a step, and its metrics


class TrackedRun(ABC):
    """One method run in a store."""

    last: defaultdict[str, int]  # the last step that the store has of each metric

    @abstractmethod
    def write(self, rows: Rows) -> None:
        """Add to what is there."""

    @abstractmethod
    def close(self, *, complete: bool) -> None:
        """End it; if it is not complete, another process may go on."""

    def update(self, rows: Rows) -> None:
        """Write what the store does not have."""
        unknown = [(step, {key: v for key, v in row.items() if step > self.last[key]}) for step, row in rows]
        if new := [(step, row) for step, row in unknown if row]:
            self.write(new)
            self.last.update({key: step for step, row in new for key in row})


class Tracker(ABC):
    """One store. It is opened before a run begins, so that problems are found by then."""

    @abstractmethod
    def __init__(self, folder: RunFolder, where: str) -> None:
        """`where` is a folder or an address; empty for a place in the run folder."""

    @abstractmethod
    def open(self, run: Run, cell: Cell) -> TrackedRun:
        """A method run as the store has it, or a new one."""

    def keep(self, run: Run, files: Sequence[Path]) -> None:  # noqa: B027
        """Keep files of the whole run, if the store takes files."""

    @abstractmethod
    def look(self) -> str:
        """The command that shows what was tracked."""


def batch_rows(records: Iterable[Record]) -> Iterator[tuple[int, dict[str, float]]]:
    """What is tracked of each batch."""
    n = wrong = 0
    for record in records:
        row = dict(record.info)
        if record.scored:
            n, wrong = n + record.scored, wrong + record.wrong
            row |= {"error": 100 * record.wrong / record.scored, "running_error": 100 * wrong / n}
        if record.selected is not None:
            row["selected"] = 100 * record.selected / record.n
        row["seconds"] = record.seconds
        yield record.step, {f"batch/{plain(name)}": value for name, value in row.items() if math.isfinite(value)}


def final_row(records: Iterable[Record], done: Done) -> tuple[int, dict[str, float]]:
    """What is tracked of a complete method run, at the step after its last."""
    labelled = [record for record in records if record.scored]
    domains: dict[str, list[Record]] = {}
    for record in labelled:
        domains.setdefault(record.domain, []).append(record)
    row = {f"domain/{plain(name)}": total_error(found) for name, found in domains.items()}
    if labelled:
        row["final/error"] = total_error(labelled)
    row |= {"final/seconds": done.seconds, "final/peak_memory": done.peak_memory, "final/valid": float(done.valid)}
    return done.batches, row


def parameters(run: Run, cell: Cell) -> dict[str, str | int | float | bool]:
    """What describes a tracked run: the stream, the method and its settings."""
    about = {name: run.stream[name] for name in ("dataset", "batch", "boundaries", "protocol") if name in run.stream}
    who = {"label": cell.label, "method": cell.method, "seed": cell.seed, "preset": cell.preset}
    return dict(_flat({"experiment": run.name, "identity": run.identity, **about, **who, "config": cell.config}))


def group(run: Run) -> str:
    """A name that the method runs of one run share, and no other run has."""
    return f"{plain(run.name)}-{run.identity[:8]}"


def plain(name: str) -> str:
    """Letters, digits and what every tracker accepts in a name."""
    return re.sub(r"[^\w.-]", "_", name)


def require(module: str, extra: str) -> Any:
    """A tracker's package, or an error that says what to install."""
    with quiet():
        return optional_import(module, extra, f"Tracking with {extra}")


@contextmanager
def quiet() -> Iterator[None]:
    """Without a package's warnings about its own parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    """Nested settings as pairs of a dotted name and a plain value."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value if isinstance(value, str | int | float) else json.dumps(value)
