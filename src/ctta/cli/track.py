"""`ctta track`: a run in TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ctta.base.errors import StateError
from ctta.cli.options import TRACKER
from ctta.cli.terminal import say

EXAMPLES = "Examples:  ctta track runs/demo --to tensorboard    ctta track runs/demo --to mlflow=http://host:5000"


def command(
    folder: Annotated[Path, Argument(help="Run folder, complete or not.")],
    to: Annotated[str, Option(metavar=TRACKER, help="tensorboard, mlflow, wandb; optionally with a folder or URL.")],
) -> None:
    """Log a run folder to TensorBoard, MLflow or Weights & Biases (offline). What was logged before is skipped."""
    from ctta.records.run_folder import RunFolder
    from ctta.report.trackers import Tracking

    RunFolder(folder).run()
    failures: list[str] = []
    tracking = Tracking(RunFolder(folder), to, failures.append)
    tracking.finish()
    for line in tracking.look():
        say(f"Tracked: {line}")
    if failures:
        raise StateError("\n".join(failures))
