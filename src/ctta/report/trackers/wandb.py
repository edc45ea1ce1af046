"""Weights & Biases: the only module that imports it."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctta.records.run_folder import Cell, Run, RunFolder
from ctta.report.trackers.backend import Rows, TrackedRun, Tracker, group, parameters, plain, quiet, require


class WandB(Tracker):
    """One W&B run per method run, and one for the page and the table, in one group.

    An offline run cannot be extended: one that was interrupted is removed and written again from the records.
    """

    def __init__(self, folder: RunFolder, where: str) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self.package = require("wandb", "wandb")
        self.mode = os.environ.get("WANDB_MODE", "offline")
        self.path = Path(where) if where else folder.path
        self.path.mkdir(parents=True, exist_ok=True)

    def open(self, run: Run, cell: Cell) -> TrackedRun:
        return WandBRun(self, run, cell.cell, parameters(run, cell))

    def keep(self, run: Run, files: Sequence[Path]) -> None:
        tracked = WandBRun(self, run, "report", {})
        tracked.keep(files)
        tracked.close(complete=False)  # the next report takes its place

    def look(self) -> str:
        return f"wandb sync {self.path / 'wandb'}/offline-run-*" if self.mode == "offline" else "wandb status"


class WandBRun(TrackedRun):
    MARK = "complete"  # a file in the folder of an offline run

    def __init__(self, tracker: WandB, run: Run, name: str, about: Mapping[str, Any]) -> None:
        key, package, offline = f"{run.identity}-{name}", tracker.package, tracker.mode == "offline"
        self.run: Any = None
        before = list((tracker.path / "wandb").glob(f"offline-run-*-{key}"))
        if any((path / self.MARK).is_file() for path in before):
            self.last = defaultdict(lambda: sys.maxsize)
            return
        for path in before:
            shutil.rmtree(path)
        off = dict.fromkeys(("disable_git", "x_disable_meta", "x_disable_stats"), True)
        settings = package.Settings(silent=True, console="off", save_code=False, **off)
        where = {"dir": str(tracker.path), "mode": tracker.mode, "resume": None if offline else "allow"}
        names = {"project": plain(run.name), "group": group(run), "name": name, "id": key}
        with quiet():
            self.run = package.init(**names, **where, config=dict(about), reinit="create_new", settings=settings)
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
