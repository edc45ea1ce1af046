"""Follows a run folder and writes what is new to the chosen trackers: during a run, after it, or after a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import quoted
from ctta.records.run_folder import Cell, Run, RunFolder
from ctta.report.results import Results
from ctta.report.trackers.backend import Rows, TrackedRun, Tracker, batch_rows, final_row
from ctta.report.trackers.mlflow import MLflow
from ctta.report.trackers.tensorboard import TensorBoard
from ctta.report.trackers.wandb import WandB

EVERY = 5.0  # seconds between two updates during a run, at least
SHARE = 0.05  # of a run's time that tracking may take, at most
FILES = ("report.html", "table.csv")  # kept with the whole run, if a tracker keeps files
TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


class Tracking:
    """The trackers of one run folder. One that fails is reported once and left out from then on; the run goes on."""

    def __init__(self, folder: RunFolder, to: str, warn: Callable[[str], None]) -> None:
        """`to` reads tensorboard,mlflow or tensorboard=logs,mlflow=http://host:5000; empty for none."""
        self.folder, self.warn = folder, warn
        self.trackers = {name: _make(name, folder, where) for name, where in parse(to).items()}
        self.open: dict[tuple[str, str], TrackedRun] = {}  # by tracker and method run
        self.results: Results | None = None  # as last read
        self.due = 0.0

    def follow(self) -> None:
        """Update, if it is time to."""
        began = time.monotonic()
        if self.trackers and began >= self.due:
            self.update()
            took = time.monotonic() - began
            self.due = began + took + max(EVERY, took / SHARE)

    def update(self) -> None:
        """Write what is new in the folder, if the run has begun."""
        if not (self.folder.path / "run.json").is_file():
            return
        known = self.results.method_runs if self.results else ()
        self.results = self.results.newer() if self.results else Results.load(self.folder)
        run = self.results.run
        for one in self.results.method_runs:
            if one.records and not any(one is old for old in known):
                rows = [*batch_rows(one.records), *([final_row(one.records, one.done)] if one.done else [])]
                for name in list(self.trackers):
                    with self._excused(name):
                        self._write(name, run, one.cell, rows, complete=one.done is not None)

    def finish(self) -> None:
        """The last update, once table and page are written."""
        if self.trackers:
            self.update()
        if self.results:
            files = [path for name in FILES if (path := self.folder.path / name).is_file()]
            for name in list(self.trackers):
                with self._excused(name):
                    self.trackers[name].keep(self.results.run, files)
        self.close()

    def close(self) -> None:
        """Close the method runs that are not complete."""
        while self.open:
            (name, _), tracked = self.open.popitem()
            with self._excused(name):
                tracked.close(complete=False)

    def look(self) -> list[str]:
        """The commands that show what was tracked."""
        return [tracker.look() for tracker in self.trackers.values()]

    def _write(self, name: str, run: Run, cell: Cell, rows: Rows, *, complete: bool) -> None:
        key = (name, cell.cell)
        if key not in self.open:
            self.open[key] = self.trackers[name].open(run, cell)
        self.open[key].update(rows)
        if complete:
            self.open.pop(key).close(complete=True)

    @contextmanager
    def _excused(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it is, the run goes on
            if self.trackers.pop(name, None):
                self.open = {key: tracked for key, tracked in self.open.items() if key[0] != name}
                self.warn(
                    f"{name} failed and is left out from here on ({_words(error)}). The records are not touched: "
                    f"ctta track {self.folder.path} --to {name} writes what is missing."
                )


def parse(to: str) -> dict[str, str]:
    """Trackers by name with their places, from tensorboard,mlflow=PLACE; a place may be empty."""
    pairs = [part.strip().partition("=") for part in to.split(",") if part.strip()]
    if unknown := [name for name, _, _ in pairs if name not in TRACKERS]:
        raise ConfigError(
            "\n".join(f"There is no tracker {quoted(name)}. {nearest(name, TRACKERS)}" for name in unknown)
        )
    return {name: where for name, _, where in pairs}


def _make(name: str, folder: RunFolder, where: str) -> Tracker:
    try:
        return TRACKERS[name](folder, where)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be used at {where or folder.path} ({_words(error)}). Give another place, {name}=PLACE, or "
            "leave it out; ctta track can write all of it after the run."
        ) from error


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
