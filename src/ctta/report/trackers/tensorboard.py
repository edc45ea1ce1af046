"""TensorBoard: the only module that imports it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctta.records.run_folder import Cell, Run, RunFolder
from ctta.report.trackers.backend import Rows, TrackedRun, Tracker, group, parameters, require


class TensorBoard(Tracker):
    """Event files, one folder per method run."""

    def __init__(self, folder: RunFolder, where: str) -> None:
        self.package = require("torch.utils.tensorboard", "tensorboard")
        self.path = Path(where) if where else folder.path / "tensorboard"
        self.path.mkdir(parents=True, exist_ok=True)

    def open(self, run: Run, cell: Cell) -> TrackedRun:
        return EventFile(self.package, self.path / group(run) / cell.cell, parameters(run, cell))

    def look(self) -> str:
        return f"tensorboard --logdir {self.path}"


class EventFile(TrackedRun):
    def __init__(self, package: Any, path: Path, about: Mapping[str, Any]) -> None:
        self.package, self.path, self.about = package, path, about
        self.file: Any = None  # made when there is something to write
        self.last = defaultdict(lambda: -1)
        if path.is_dir():
            reader = require("tensorboard.backend.event_processing.event_accumulator", "tensorboard")
            found = reader.EventAccumulator(str(path), size_guidance={reader.SCALARS: 1}).Reload()
            self.last.update({tag: found.Scalars(tag)[-1].step for tag in found.Tags()["scalars"]})

    def write(self, rows: Rows) -> None:
        summary = self.package.summary
        if self.file is None:
            self.file = self.package.FileWriter(str(self.path))
            for part in summary.hparams(dict(self.about), {"final/error": 0.0}):  # declared here; the number comes last
                self.file.add_summary(part)
        for step, row in rows:
            for name, value in row.items():
                self.file.add_summary(summary.scalar(name, value), step)
        self.file.flush()

    def close(self, *, complete: bool) -> None:
        if self.file is not None:
            self.file.close()
