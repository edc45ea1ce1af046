"""TensorBoard, MLflow and Weights & Biases, fed from a run folder. The one module that imports them.

A tracker reads records and writes those that are not there yet: after a run, while it goes on, or after a crash. One
tracked run is a cell; its metrics, each with its step:

    batch/...    a batch's error and running error (over all samples so far) in percent, the percentage selected,
                 seconds, and what the method says: confidence, threshold, views, loss ...
    domain/...   the error of each domain in percent, once the cell is complete
    final/...    error, seconds, MB at the peak, and 1 if the numbers are valid, else 0

Nothing leaves the machine unless the user says so: MLflow writes an SQLite file unless given an address (or
MLFLOW_TRACKING_URI), W&B is offline unless WANDB_MODE says otherwise, and both are told not to report on their use.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import optional_import
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder

EVERY = 5.0  # seconds between two looks at the folder of a run that goes on, at least
SHARE = 0.05  # of a run's time that may go into tracking it
FILES = ("report.html", "table.csv")  # kept with the whole run, where a tracker keeps files
NOTHING: Mapping[str, str] = MappingProxyType({})

Rows = Sequence[tuple[int, Mapping[str, float]]]  # a step, and what is known of it


def batch_rows(records: Iterable[Record]) -> Iterator[tuple[int, dict[str, float]]]:
    """What is tracked of each batch."""
    n = wrong = 0
    for record in records:
        row = dict(record.info)
        n, wrong = n + record.n, wrong + record.wrong
        if record.wrong >= 0:
            row |= {"error": 100 * record.wrong / record.n, "running_error": 100 * wrong / n}
        if record.selected is not None:
            row["selected"] = 100 * record.selected / record.n
        row["seconds"] = record.seconds
        yield record.step, {f"batch/{_plain(name)}": value for name, value in row.items() if math.isfinite(value)}


def final_row(records: Iterable[Record], done: Done) -> tuple[int, dict[str, float]]:
    """What is tracked of a complete cell, at the step after its last."""
    samples: dict[str, int] = defaultdict(int)
    mistakes: dict[str, int] = defaultdict(int)
    for record in records:
        if record.wrong >= 0:
            samples[record.domain] += record.n
            mistakes[record.domain] += record.wrong
    row = {f"domain/{_plain(name)}": 100 * mistakes[name] / n for name, n in samples.items()}
    if samples:
        row["final/error"] = 100 * sum(mistakes.values()) / sum(samples.values())
    row |= {"final/seconds": done.seconds, "final/peak_memory": done.peak_memory, "final/valid": float(done.valid)}
    return done.batches, row


def parameters(run: Run, cell: Cell) -> dict[str, str | int | float | bool]:
    """What a tracked run is known by: the stream, the cell and its settings."""
    about = {name: run.stream[name] for name in ("dataset", "batch", "boundaries", "protocol") if name in run.stream}
    who = {"label": cell.label, "method": cell.method, "seed": cell.seed, "preset": cell.preset}
    return dict(_flat({"experiment": run.name, "identity": run.identity, **about, **who, "config": cell.config}))


class Tracked(ABC):
    """One cell in a store."""

    last: defaultdict[str, int]  # the last step that the store has of each metric

    @abstractmethod
    def write(self, rows: Rows) -> None:
        """Add to what is there."""

    @abstractmethod
    def close(self, *, complete: bool) -> None:
        """No more is to come, or not from this process."""

    def update(self, rows: Rows) -> None:
        """Write what the store does not have."""
        unknown = [(step, {key: v for key, v in row.items() if step > self.last[key]}) for step, row in rows]
        if new := [(step, row) for step, row in unknown if row]:
            self.write(new)
            self.last.update({key: step for step, row in new for key in row})


class Tracker(ABC):
    """One store. It is opened before a run begins, so that what is amiss is known by then."""

    @abstractmethod
    def __init__(self, folder: RunFolder, where: str) -> None:
        """`where` is a folder or an address; empty for a place in the run folder."""

    @abstractmethod
    def open(self, run: Run, cell: Cell) -> Tracked:
        """A cell as the store has it, or a new one."""

    @abstractmethod
    def keep(self, run: Run, files: Sequence[Path]) -> None:
        """Keep files of the whole run, where the store takes files."""

    @abstractmethod
    def look(self) -> str:
        """The command that shows what was tracked."""


class TensorBoard(Tracker):
    """Event files, a folder a cell."""

    def __init__(self, folder: RunFolder, where: str) -> None:
        self.package = _require("torch.utils.tensorboard", "tensorboard")
        self.path = Path(where) if where else folder.path / "tensorboard"
        self.path.mkdir(parents=True, exist_ok=True)

    def open(self, run: Run, cell: Cell) -> Tracked:
        return _EventFile(self.package, self.path / _group(run) / cell.cell, parameters(run, cell))

    def keep(self, run: Run, files: Sequence[Path]) -> None:
        """TensorBoard takes no files."""

    def look(self) -> str:
        return f"tensorboard --logdir {self.path}"


class _EventFile(Tracked):
    def __init__(self, package: Any, path: Path, told: Mapping[str, Any]) -> None:
        self.package, self.path, self.told = package, path, told
        self.file: Any = None  # made when there is something to write
        self.last = defaultdict(lambda: -1)
        if path.is_dir():
            reader = _require("tensorboard.backend.event_processing.event_accumulator", "tensorboard")
            found = reader.EventAccumulator(str(path), size_guidance={reader.SCALARS: 1}).Reload()
            self.last.update({tag: found.Scalars(tag)[-1].step for tag in found.Tags()["scalars"]})

    def write(self, rows: Rows) -> None:
        summary = self.package.summary
        if self.file is None:
            self.file = self.package.FileWriter(str(self.path))
            for part in summary.hparams(dict(self.told), {"final/error": 0.0}):  # declared here; the number comes last
                self.file.add_summary(part)
        for step, row in rows:
            for name, value in row.items():
                self.file.add_summary(summary.scalar(name, value), step)
        self.file.flush()

    def close(self, *, complete: bool) -> None:
        if self.file is not None:
            self.file.close()


class MLflow(Tracker):
    """An MLflow run a cell, and one above them that keeps the page and the table."""

    def __init__(self, folder: RunFolder, where: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a lost server is not waited for
        self.package = _require("mlflow", "mlflow")
        self.uri = where or os.environ.get("MLFLOW_TRACKING_URI", "") or str(folder.path)
        self.files: str | None = None  # where a store keeps files, unless it knows
        if "://" not in self.uri:
            path = Path(self.uri).resolve()
            path.mkdir(parents=True, exist_ok=True)
            self.uri, self.files = f"sqlite:///{path / 'mlflow.db'}", (path / "mlartifacts").as_uri()
        if self.uri.startswith("sqlite:"):
            _require("sqlalchemy", "mlflow")
            _require("alembic", "mlflow")
        with _hushed():
            self.client = self.package.MlflowClient(tracking_uri=self.uri)
            self.client.search_experiments(max_results=1)

    def open(self, run: Run, cell: Cell) -> Tracked:
        above = {"mlflow.parentRunId": self._run(run, run.name, run.identity)}
        run_id = self._run(run, cell.cell, f"{run.identity}/{cell.cell}", above)
        return _MLflowRun(self.package.entities, self.client, run_id, parameters(run, cell))

    def keep(self, run: Run, files: Sequence[Path]) -> None:
        run_id = self._run(run, run.name, run.identity)
        for path in files:
            self.client.log_artifact(run_id, str(path))
        self.client.set_terminated(run_id)

    def look(self) -> str:
        return f"mlflow ui --backend-store-uri {self.uri}"

    def _run(self, run: Run, name: str, key: str, tags: Mapping[str, str] = NOTHING) -> str:
        """The MLflow run that bears the key, or a new one."""
        known = self.client.get_experiment_by_name(run.name)
        home = known.experiment_id if known else self.client.create_experiment(run.name, self.files)
        found = self.client.search_runs([home], f"tags.ctta = '{key}'", max_results=1)
        one = found[0] if found else self.client.create_run(home, run_name=name, tags={"ctta": key, **tags})
        return str(one.info.run_id)


class _MLflowRun(Tracked):
    METRICS, PARAMETERS = 1000, 100  # a call, by MLflow's own limits

    def __init__(self, entities: Any, client: Any, run_id: str, told: Mapping[str, Any]) -> None:
        self.entities, self.client, self.run_id = entities, client, run_id
        stored = client.get_run(run_id)
        steps = {name: client.get_metric_history(run_id, name)[-1].step for name in stored.data.metrics}
        self.last = defaultdict(lambda: -1, steps)
        if stored.info.status == "KILLED":
            client.update_run(run_id, status="RUNNING")
        pairs = [entities.Param(name, str(value)) for name, value in told.items()]
        for start in range(0, len(pairs), self.PARAMETERS):
            client.log_batch(run_id, params=pairs[start : start + self.PARAMETERS])

    def write(self, rows: Rows) -> None:
        now = int(1000 * time.time())
        points = [self.entities.Metric(name, value, now, step) for step, row in rows for name, value in row.items()]
        for start in range(0, len(points), self.METRICS):
            self.client.log_batch(self.run_id, metrics=points[start : start + self.METRICS])

    def close(self, *, complete: bool) -> None:
        if self.client.get_run(self.run_id).info.status == "RUNNING":
            self.client.set_terminated(self.run_id, "FINISHED" if complete else "KILLED")


class WandB(Tracker):
    """A W&B run a cell, and one for the page and the table, in one group.

    What is offline cannot be added to: a run that was cut short is removed and written anew, from the records.
    """

    def __init__(self, folder: RunFolder, where: str) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self.package = _require("wandb", "wandb")
        self.mode = os.environ.get("WANDB_MODE", "offline")
        self.path = Path(where) if where else folder.path
        self.path.mkdir(parents=True, exist_ok=True)

    def open(self, run: Run, cell: Cell) -> Tracked:
        return _WandBRun(self, run, cell.cell, parameters(run, cell))

    def keep(self, run: Run, files: Sequence[Path]) -> None:
        tracked = _WandBRun(self, run, "report", {})
        tracked.keep(files)
        tracked.close(complete=False)  # the next report takes its place

    def look(self) -> str:
        return f"wandb sync {self.path / 'wandb'}/offline-run-*" if self.mode == "offline" else "wandb status"


class _WandBRun(Tracked):
    MARK = "complete"  # a file in the folder of an offline run

    def __init__(self, tracker: WandB, run: Run, name: str, told: Mapping[str, Any]) -> None:
        key, package, offline = f"{run.identity}-{name}", tracker.package, tracker.mode == "offline"
        self.run: Any = None
        before = list((tracker.path / "wandb").glob(f"offline-run-*-{key}"))
        if any((path / self.MARK).is_file() for path in before):
            self.last = defaultdict(lambda: sys.maxsize)
            return
        for path in before:
            shutil.rmtree(path)
        with _hushed():
            self.run = package.init(
                project=_plain(run.name),
                group=_group(run),
                name=name,
                id=key,
                config=dict(told),
                dir=str(tracker.path),
                mode=tracker.mode,
                resume=None if offline else "allow",
                reinit="create_new",
                settings=package.Settings(
                    silent=True,
                    console="off",
                    save_code=False,
                    disable_git=True,
                    x_disable_meta=True,
                    x_disable_stats=True,
                ),
            )
        start = self.run.starting_step
        self.last = defaultdict(lambda: start - 1)

    def write(self, rows: Rows) -> None:
        for step, row in rows:
            self.run.log(dict(row), step=step)

    def keep(self, files: Sequence[Path]) -> None:
        for path in files:
            self.run.save(shutil.copy(path, self.run.dir), base_path=self.run.dir, policy="now")

    def close(self, *, complete: bool) -> None:
        if self.run is not None:
            self.run.finish()
            if complete:
                Path(self.run.dir).with_name(self.MARK).touch()


TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


class Tracking:
    """The trackers of one run folder. One that fails is told of once and left out from then on; the run goes on."""

    def __init__(self, folder: RunFolder, to: str, warn: Callable[[str], None]) -> None:
        """`to` reads tensorboard,mlflow or tensorboard=logs,mlflow=http://host:5000; empty for none."""
        self.folder, self.warn = folder, warn
        self.trackers = {name: _make(name, folder, where) for name, where in parse(to).items()}
        self.open: dict[tuple[str, str], Tracked] = {}  # by tracker and cell
        self.finished: set[tuple[str, str]] = set()
        self.due = 0.0

    def follow(self) -> None:
        """Look at the folder, if it is time to."""
        began = time.monotonic()
        if self.trackers and began >= self.due:
            self.update()
            took = time.monotonic() - began
            self.due = began + took + max(EVERY, took / SHARE)

    def update(self) -> None:
        """Write what is new in the folder."""
        run = self.folder.run()
        for cell in run.cells:
            waiting = [name for name in self.trackers if (name, cell.cell) not in self.finished]
            if waiting and self.folder.records_path(cell.cell).is_file():
                done = self.folder.done(cell.cell)  # looked for first: where it is, all records are
                records = list(self.folder.records(cell.cell))
                rows = [*batch_rows(records), *([final_row(records, done)] if done else [])]
                for name in waiting:
                    with self._excused(name):
                        self._write(name, run, cell, rows, complete=done is not None)

    def finish(self) -> None:
        """The last look, once table and page are written."""
        if self.trackers:
            self.update()
            run = self.folder.run()
            files = [path for name in FILES if (path := self.folder.path / name).is_file()]
            for name in list(self.trackers):
                with self._excused(name):
                    self.trackers[name].keep(run, files)
        self.close()

    def close(self) -> None:
        """Let go of the cells that are not complete."""
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
            self.finished.add(key)

    @contextmanager
    def _excused(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it is: hours of computing do not end for it
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
        raise ConfigError("\n".join(f"There is no tracker {name!r}. {nearest(name, TRACKERS)}" for name in unknown))
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


def _require(module: str, extra: str) -> Any:
    """A tracker's package, or an error that says what to install."""
    with _hushed():
        return optional_import(module, extra, f"Tracking with {extra}")


@contextmanager
def _hushed() -> Iterator[None]:
    """What a package has to say about its own parts is not for the user."""
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


def _group(run: Run) -> str:
    """What the cells of one run share, and no other run has."""
    return f"{_plain(run.name)}-{run.identity[:8]}"


def _plain(name: str) -> str:
    """Letters, digits and what every tracker takes in a name."""
    return re.sub(r"[^\w.-]", "_", name)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
