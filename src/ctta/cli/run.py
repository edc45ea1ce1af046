"""`ctta run`: an experiment or a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from ctta.base.errors import ConfigError, StateError, nearest
from ctta.cli import report
from ctta.cli.options import TRACKER, AsJson, Every, Out, Quiet, Set
from ctta.cli.terminal import interruptible, progress_bar, say, typed

if TYPE_CHECKING:
    from ctta.experiments.experiment import Experiment
    from ctta.records.run_folder import RunFolder
    from ctta.report.trackers import Tracking
    from ctta.running import engines

EXAMPLES = "Examples:  ctta run mine.yaml --set data.images=500    ctta run mine.yaml --engine local --workers 4"


def command(
    experiment: Annotated[Path, Argument(help="YAML file of an experiment, or of a sweep if it has `grid:`.")],
    out: Out = None,
    change: Set = None,
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
    from ctta.report.trackers import Tracking
    from ctta.running import engines
    from ctta.running.memory import keep_freed

    if engine not in (None, "local", "ray"):
        raise ConfigError(f"There is no engine {engine!r}. {nearest(engine, ('local', 'ray'))}")
    if engine is None and (workers is not None or threads != 1):
        raise ConfigError("--workers and --threads belong to an engine. Add --engine local or --engine ray.")
    if engine != "ray" and address != "auto":
        raise ConfigError("--address is that of a Ray cluster. Add --engine ray, or leave it out.")
    keep_freed()
    path, runs = _runs(experiment, out, change or [])
    tracking = [Tracking(folder, track, partial(say, error=True)) for _, folder in runs]
    start: Callable[..., engines.Events] = engines.here
    if engine == "local":
        start = partial(engines.local, workers=workers or max(1, (os.cpu_count() or 1) // threads), threads=threads)
    elif engine == "ray":
        start = partial(engines.on_ray, address=address, workers=workers, threads=threads)
    start, silent = partial(start, checkpoint_seconds=checkpoint_seconds), quiet or as_json
    failures = _execute(runs, path, start, threads if engine else None, tracking, silent)
    report.command(path, as_json)
    for one in tracking:
        one.finish()
        for line in one.look():
            say(f"Tracked: {line}", quiet=silent)
    if failures:
        for event in failures:
            say(("failed ", "bold red"), f"{event.job.cell.cell} in {event.job.folder}\n{event.error}", error=True)
        count = f"{len(failures)} run{'s' if len(failures) > 1 else ''}"
        say(f"{count} failed; the results of the others are kept. The same command tries again.", error=True)
        raise Exit(1)


def _runs(file: Path, out: Path | None, changes: list[str]) -> tuple[Path, list[tuple[Experiment, RunFolder]]]:
    """Return the folder of the experiment or the sweep in a file, and every experiment with its run folder."""
    from ctta.experiments import experiment as experiments
    from ctta.experiments import sweep
    from ctta.experiments.sections import read_yaml
    from ctta.records.run_folder import RunFolder
    from ctta.records.sweep_folder import SweepFolder

    values = read_yaml(file, changes)
    if "grid" in values:
        swept = sweep.make(values, file.stem, typed())
        folder = SweepFolder(out or Path("runs") / swept.head.name)
        folder.write(swept.head)
        return folder.path, [(one, folder.point(slug)) for slug, one in swept.experiments.items()]
    single = experiments.make(values, name=file.stem)
    path = out or Path("runs") / single.name
    if SweepFolder(path).is_one():
        raise StateError(f"{path} holds a sweep, and this is a single experiment. Give another --out.")
    return path, [(single, RunFolder(path))]


def _execute(
    runs: Sequence[tuple[Experiment, RunFolder]],
    path: Path,
    start: Callable[[Sequence[engines.Job]], engines.Events],
    threads: int | None,
    tracking: Sequence[Tracking],
    silent: bool,
) -> list[engines.Event]:
    """Run every method and seed that is not complete, under one progress bar; return those that failed."""
    from ctta.running import engines

    def stop() -> str:
        for one in tracking:
            one.close()
        return f"What was done is kept in {path}; the same command continues from there."

    state = None
    with interruptible(stop), progress_bar(silent) as bar:
        task = bar.add_task("opening", total=len(runs))
        plan = engines.plan(runs, typed(), threads, lambda count: bar.update(task, completed=count))
        bar.reset(task, total=plan.batches, completed=plan.done, description="starting")
        with closing(start(plan.jobs)) as events:
            for state in engines.follow(plan, events):
                event = state.last
                now = f" {event.job.cell.label}: {event.domain}" if event and event.domain else ""
                text = f"{state.over}/{len(plan.jobs)} runs{now}"
                bar.update(task, completed=state.batches, description=f"{text:.40}")
                for one in tracking:
                    one.follow()
    if state is None:
        say(f"Everything in {path} was complete already.", error=True, quiet=silent)
    return state.failures if state else []
