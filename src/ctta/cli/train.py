"""`ctta train`: a source model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ctta.cli.options import Device, Every, Quiet, Set
from ctta.cli.terminal import interruptible, progress_bar, say

EXAMPLES = "Example:  ctta train train.yaml -o model.safetensors --set train.epochs=30"


def command(
    settings: Annotated[Path, Argument(help="YAML file with the sections data, test, model and train.")],
    out: Annotated[Path, Option("--out", "-o", help="File for the weights. The log is written beside it.")],
    change: Set = None,
    device: Device = None,
    force: Annotated[bool, Option("--force", help="Start again and overwrite an earlier training.")] = False,
    quiet: Quiet = False,
    checkpoint_seconds: Every = 30.0,
) -> None:
    """Train a source model, if none is available. If it is interrupted, the same command continues it."""
    from ctta.experiments.sections import put, read_yaml
    from ctta.running.memory import keep_freed
    from ctta.training import learner, recipe

    keep_freed()
    values = read_yaml(settings, change or [])
    training = recipe.make(put(values, "train.device", device) if device is not None else values)
    with interruptible(lambda: "The same command continues from the last checkpoint."), progress_bar(quiet) as bar:
        task = bar.add_task("starting", total=None)
        for state in learner.train(training, out, force=force, checkpoint_seconds=checkpoint_seconds):
            bar.update(task, completed=state.done, total=state.total, description=f"loss {state.loss:.3f}")
            if epoch := state.ended:
                found = {"train": epoch.error, "test": epoch.test_error}
                errors = [f"{name} error {value:5.2f} %" for name, value in found.items() if value is not None]
                line = "  ".join([f"epoch {epoch.epoch}/{training.train.epochs}  loss {epoch.loss:.4f}", *errors])
                bar.console.print(line, highlight=False)
    say(f"{out}: {errors[-1]}")
