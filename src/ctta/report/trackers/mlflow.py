"""MLflow: the only module that imports it."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctta.records.run_folder import Cell, Run, RunFolder
from ctta.report.trackers.backend import Rows, TrackedRun, Tracker, parameters, quiet, require


class MLflow(Tracker):
    """One MLflow run per method run, and one above them that keeps the page and the table."""

    def __init__(self, folder: RunFolder, where: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # do not wait for a lost server
        self.package = require("mlflow", "mlflow")
        self.uri = where or os.environ.get("MLFLOW_TRACKING_URI", "") or str(folder.path)
        self.files: str | None = None  # where the store keeps files, unless it has a place of its own
        if "://" not in self.uri:
            path = Path(self.uri).resolve()
            path.mkdir(parents=True, exist_ok=True)
            self.uri, self.files = f"sqlite:///{path / 'mlflow.db'}", (path / "mlartifacts").as_uri()
        if self.uri.startswith("sqlite:"):
            require("sqlalchemy", "mlflow")
            require("alembic", "mlflow")
        with quiet():
            self.client = self.package.MlflowClient(tracking_uri=self.uri)
            self.client.search_experiments(max_results=1)

    def open(self, run: Run, cell: Cell) -> TrackedRun:
        above = {"mlflow.parentRunId": self._run(run, run.name, run.identity)}
        run_id = self._run(run, cell.cell, f"{run.identity}/{cell.cell}", **above)
        return MLflowRun(self.package.entities, self.client, run_id, parameters(run, cell))

    def keep(self, run: Run, files: Sequence[Path]) -> None:
        run_id = self._run(run, run.name, run.identity)
        for path in files:
            self.client.log_artifact(run_id, str(path))
        self.client.set_terminated(run_id)

    def look(self) -> str:
        return f"mlflow ui --backend-store-uri {self.uri}"

    def _run(self, run: Run, name: str, key: str, **tags: str) -> str:
        """The MLflow run with this key, or a new one."""
        known = self.client.get_experiment_by_name(run.name)
        home = known.experiment_id if known else self.client.create_experiment(run.name, self.files)
        found = self.client.search_runs([home], f"tags.ctta = '{key}'", max_results=1)
        one = found[0] if found else self.client.create_run(home, run_name=name, tags={"ctta": key, **tags})
        return str(one.info.run_id)


class MLflowRun(TrackedRun):
    METRICS, PARAMETERS = 1000, 100  # per call, by MLflow's own limits

    def __init__(self, entities: Any, client: Any, run_id: str, about: Mapping[str, Any]) -> None:
        self.entities, self.client, self.run_id = entities, client, run_id
        stored = client.get_run(run_id)
        steps = {name: client.get_metric_history(run_id, name)[-1].step for name in stored.data.metrics}
        self.last = defaultdict(lambda: -1, steps)
        if stored.info.status == "KILLED":
            client.update_run(run_id, status="RUNNING")
        pairs = [entities.Param(name, str(value)) for name, value in about.items()]
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
