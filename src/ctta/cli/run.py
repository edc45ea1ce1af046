"""`ctta run`: an experiment or a sweep."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from ctta.base.errors import ConfigError, nearest
from ctta.base.fileio import safe_name
from ctta.base.text import one_line, quoted
from ctta.cli import report
from ctta.cli.options import TRACKER, AsJson, Device, Every, Out, Quiet, Set
from ctta.cli.terminal import interruptible, progress_bar, say, typed

if TYPE_CHECKING:
    from ctta.experiments.experiment import Experiment
    from ctta.experiments.sweep import Sweep
    from ctta.running.engines import Engine

EXAMPLES = "Examples:  ctta run mine.yaml --set data.images=500    ctta run mine.yaml --engine local --workers 4"


def command(
    experiment: Annotated[Path, Argument(help="YAML file of an experiment, or of a sweep if it has `grid:`.")],
    out: Out = None,
    change: Set = None,
    device: Device = None,
    engine: Annotated[str | None, Option(metavar="local|ray", help="Run in parallel: processes or Ray.")] = None,
    workers: Annotated[int | None, Option(min=1, help="Method runs at the same time. Default: as many as fit.")] = None,
    threads: Annotated[int, Option(min=1, help="CPU threads per worker.")] = 1,
    address: Annotated[str, Option(help="Ray cluster, HOST:PORT; auto is the one of this machine.")] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
    track: Annotated[str, Option(metavar=TRACKER, help="Also log to tensorboard, mlflow or wandb.")] = "",
    checkpoint_seconds: Every = 30.0,
) -> None:
    """Run an experiment or a sweep. If it is interrupted, the same command continues it."""
    from ctta.experiments import experiment as experiments
    from ctta.experiments import sweep
    from ctta.experiments.sections import put, read_yaml
    from ctta.report.trackers import Tracking
    from ctta.running.memory import keep_freed
    from ctta.running.run import run, run_folders

    chosen = _engine(engine, workers, threads, address, checkpoint_seconds)
    keep_freed()
    values = read_yaml(experiment, change or [])
    values = put(values, "execution.device", device) if device is not None else values
    what: Experiment | Sweep
    if "grid" in values:
        what = sweep.make(values, experiment.stem, typed())
        path = out or Path("runs") / safe_name(what.head.name)
    else:
        what = experiments.make(values, name=experiment.stem)
        path = out or Path("runs") / safe_name(what.name)
    tracking = [Tracking(folder, track, partial(say, error=True)) for _, folder in run_folders(what, path)]

    def stop() -> str:
        for one in tracking:
            one.close()
        return f"What was done is kept in {path}; the same command continues from there."

    silent = quiet or as_json
    with interruptible(stop), progress_bar(silent) as bar:
        task = bar.add_task("opening", total=None)
        for status in run(what, path, chosen, command=typed()):
            event = status.last
            now = f" {event.job.cell.label}: {event.domain}" if event and event.domain else ""
            text = f"{status.over}/{status.jobs} runs{now}" if status.opened == status.folders else "opening"
            bar.update(task, completed=status.done, total=status.batches, description=one_line(f"{text:.40}"))
            for one in tracking if event else ():
                one.follow()
    if not status.jobs:
        say(f"Everything in {path} was complete already.", error=True, quiet=silent)
    report.command(path, as_json)
    for one in tracking:
        one.finish()
        for line in one.look():
            say(f"Tracked: {line}", quiet=silent)
    if status.failures:
        for event in status.failures:
            say(("failed ", "bold red"), f"{event.job.cell.cell} in {event.job.folder}\n{event.error}", error=True)
        count = f"{len(status.failures)} run{'s' if len(status.failures) > 1 else ''}"
        say(f"{count} failed; the results of the others are kept. The same command tries again.", error=True)
        raise Exit(1)


def _engine(name: str | None, workers: int | None, threads: int, address: str, every: float) -> Engine:
    """Return the engine that the options ask for; without one, everything runs in this process."""
    from ctta.running import engines

    if name not in (None, "local", "ray"):
        raise ConfigError(f"There is no engine {quoted(name)}. {nearest(name, ('local', 'ray'))}")
    if name is None and (workers is not None or threads != 1):
        raise ConfigError("--workers and --threads belong to an engine. Add --engine local or --engine ray.")
    if name != "ray" and address != "auto":
        raise ConfigError("--address is that of a Ray cluster. Add --engine ray, or leave it out.")
    if name == "ray":
        return engines.RayCluster(address, workers, threads, every)
    return engines.Inline(every) if name is None else engines.Processes(workers, threads, every)
