"""A table that is kept apart from its records, as in a repository: NAME.csv, and beside it NAME.json, how it was made.

`keep` writes both from a report. `check` makes the table again from the records and compares it with the CSV, but for
times and memory, which belong to a machine. Columns that the CSV does not have are not compared: a later version may
have more of them. But the records must be those of the run whose identity NAME.json has.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from ctta.base.errors import StateError
from ctta.base.fileio import make_folder, write_atomically
from ctta.base.schema import read_json
from ctta.records.run_folder import Run
from ctta.report import reports
from ctta.report.reports import RunReport, SweepReport

MEASURED = ("seconds_per_batch", "images_per_second", "peak_memory_mb")
STREAM = ("dataset", "images", "batch", "boundaries", "protocol", "files")
SHOWN = 5  # differences that are spelled out


class KeptRun(TypedDict, total=False):
    """A run that was kept."""

    identity: str  # hash of its resolved experiment


class KeptHead(KeptRun, total=False):
    """What is read from NAME.json; there is more in it."""

    records: str  # their folder, seen from that of the file
    points: Mapping[str, KeptRun]  # of a sweep, which has no identity of its own


def keep(report: RunReport | SweepReport, path: Path) -> Path:
    """Write NAME.csv and NAME.json; the path may end in either, or in neither. Returns the latter."""
    path = path.parent / f"{path.name.removesuffix('.csv').removesuffix('.json')}.json"
    make_folder(path.parent)
    about = {"records": os.path.relpath(report.folder.path, path.parent), **_origin(report)}
    write_atomically(path.with_suffix(".csv"), report.csv.encode())
    write_atomically(path, json.dumps(about, indent=1).encode() + b"\n")
    return path


def check(path: Path, folder: Path | None = None) -> str:
    """Say that a kept table agrees with its records, in the folder that it names or in another; else an error."""
    table = path.parent / f"{path.stem}.csv"
    head = read_json(path, KeptHead, "Give the .json file beside a table.")
    if folder is None:
        named = head.get("records")
        if named is None:
            raise StateError(
                f"{path} does not say where its records are, so {table} cannot be checked. Give their "
                f"folder: ctta report FOLDER --check {path}"
            )
        folder = Path(os.path.normpath(path.parent / named))
        if not folder.exists():
            raise StateError(
                f"The records of {table} are not here: there is no {folder}. Run its command again, or give "
                f"the folder: ctta report FOLDER --check {path}"
            )
    if not table.exists():
        raise StateError(f"There is no {table}, the table that {path} is about. Restore it from a copy.")
    report = reports.load(folder)
    found = [*_other_runs(head, _origin(report)), *differences(table.read_text(), report.csv)]
    if found:
        more = f" And {len(found) - SHOWN} more." if len(found) > SHOWN else ""
        raise StateError(f"{table} does not agree with its records in {folder}. {' '.join(found[:SHOWN])}{more}")
    return f"{table} agrees with its records in {folder} (times and memory are not compared)."


def differences(kept: str, made: str) -> list[str]:
    """Where a kept table differs from the one that its records make, one sentence each; new columns are none."""
    old, new = (list(csv.DictReader(io.StringIO(text))) for text in (kept, made))
    if len(old) != len(new):
        return [f"It has {len(old)} rows, and the records make {len(new)}."]
    return [
        f"{row.get('label')}, {column}: it has {value!r}, and the records make {other.get(column)!r}."
        for row, other in zip(old, new, strict=True)
        for column, value in row.items()
        if column not in MEASURED and value != other.get(column)
    ]


def _other_runs(kept: KeptHead, made: Mapping[str, Any]) -> list[str]:
    """Where the records are those of another run than the one that was kept, one sentence each."""
    old, new = ({"It": about, **about.get("points", {})} for about in (kept, made))
    return [
        f"{name} was made by run {run['identity']}, and the records are of run {new[name]['identity']}: data, weights "
        "or settings differ."
        for name, run in old.items()
        if "identity" in run and "identity" in new.get(name, {}) and run["identity"] != new[name]["identity"]
    ]


def _origin(report: RunReport | SweepReport) -> Mapping[str, Any]:
    """What made the numbers: command, hashes of data and weights, seeds, settings, environment with the commit."""
    if isinstance(report, RunReport):
        return _run(report.results.run)
    head = asdict(report.folder.head())
    points = {slug: _run(point.results.run) for slug, point in report.points.items()}
    return {"command": head["command"], "axes": head["axes"], "points": points}


def _run(run: Run) -> dict[str, Any]:
    return {
        "command": run.command,
        "identity": run.identity,
        "stream": {name: run.stream.get(name) for name in STREAM},
        "seeds": sorted({cell.seed for cell in run.cells}),
        "execution": run.experiment.get("execution"),
        "environment": run.environment,
        "notes": run.notes,
    }
