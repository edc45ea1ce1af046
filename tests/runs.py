"""Run an experiment given as plain data, for tests of what it leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctta.experiments import experiment as experiments
from ctta.records.run_folder import RunFolder
from run_folders import execute


def run(spec: Mapping[str, Any], path: Path, *, stop: int | None = None) -> RunFolder:
    """Run all of it; or, with a checkpoint after every batch, until `stop` batches are followed by another one."""
    folder = RunFolder(path)
    seconds = 1e9 if stop is None else 0.0
    for count, _ in enumerate(execute(experiments.make(spec), folder, checkpoint_seconds=seconds)):
        if count == stop:
            break
    return folder
