"""The command line: thin verbs over the library. Exit codes: 0 done, 1 some cells failed, 2 to mend, 130 stopped."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

import ctta
from ctta.base.errors import ConfigError, CttaError, StateError, nearest
from ctta.data.corruptions import NAMES, PAPER
from ctta.data.corruptions.files import parse_corruptions, parse_severities, plan_corruption
from ctta.data.dataset import SPECIAL, Data
from ctta.data.datasets import DATASETS
from ctta.data.protocols import KINDS
from ctta.experiments import check as checks
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.experiments.experiment import Experiment
from ctta.methods import METHODS
from ctta.models import MODELS
from ctta.records.run_folder import RunFolder
from ctta.records.sweep_folder import SweepFolder
from ctta.report import reports, trackers
from ctta.report.tables.errors import needs
from ctta.running import engines, runner
from ctta.running.adapt_folder import plan_adaptation
from ctta.training import learner as trainer

app = typer.Typer(
    name="ctta",
    help="Continual test-time adaptation: keep a trained classifier good while the world around it changes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run folder: records, tables and page.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Change a setting.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar; the table alone.")]
AsJson = Annotated[bool, typer.Option("--json", help="The table as JSON on standard output, and nothing else.")]
TRACKER = "NAME[=PLACE],..."
Track = Annotated[str, typer.Option("--track", metavar=TRACKER, help="Feed tensorboard, mlflow, wandb as it goes.")]
FIELD = ("field", "accepted", "default", "meaning")  # what `list` says of a setting
Every = Annotated[float, typer.Option(help="Seconds between checkpoints.", hidden=True)]


@app.command(epilog="Examples:  ctta demo --out runs/demo    ctta demo --clouds")
def demo(
    out: Out = None,
    clouds: Annotated[bool, typer.Option("--clouds", help="Point clouds in place of images; under a minute.")] = False,
    fresh: Annotated[bool, typer.Option(help="Remove an earlier run in the folder first.")] = False,
    change: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Five methods over fifteen corruptions on the embedded data; ends with a table and a page. About two minutes."""
    name = "demo_clouds" if clouds else "demo"
    out = out or Path("runs") / name
    if fresh and (out / "run.json").is_file():
        shutil.rmtree(out)
    with as_file(files("ctta.assets").joinpath(f"{name}.yaml")) as path:
        experiment = experiments.load(path, change or [])
    _execute(experiment, RunFolder(out), quiet=quiet, as_json=as_json, every=30.0)


@app.command(
    epilog="Examples:  ctta run experiment.yaml --out runs/mine --set data.images=500    "
    "ctta run experiment.yaml --engine local --workers 4"
)
def run(
    experiment: Annotated[Path, typer.Argument(help="A YAML file; see `ctta check`.")],
    out: Out = None,
    change: Set = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="local|ray", help="Cells side by side: in processes, or on a Ray cluster."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Cells at a time; as many as fit without it.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each worker.")] = 1,
    address: Annotated[str, typer.Option(help="Of the Ray cluster, HOST:PORT; this machine's without it.")] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
    track: Track = "",
    checkpoint_seconds: Every = 30.0,
) -> None:
    """Run an experiment, or a sweep (`grid:`). Stopped or killed, the same command goes on where it was."""
    if engine not in (None, "local", "ray"):
        raise ConfigError(f"There is no engine {engine!r}. {nearest(engine, ('local', 'ray'))}")
    if engine is None and (workers is not None or threads != 1):
        raise ConfigError("--workers and --threads belong to an engine. Add --engine local or --engine ray.")
    if engine != "ray" and address != "auto":
        raise ConfigError("--address is that of a Ray cluster. Add --engine ray, or leave it out.")
    values = experiments.read_yaml(experiment, change or [])
    command = shlex.join(["ctta", *sys.argv[1:]])
    if "grid" in values:
        swept = sweep.make(values, experiment.stem, command)
        folder = SweepFolder(out or Path("runs") / swept.head.name)
        folder.write(swept.head)
        runs = [(one, folder.point(slug)) for slug, one in swept.experiments.items()]
        path, show = folder.path, partial(_show, folder.path, as_json=as_json)
    else:
        loaded = experiments.make(values, name=experiment.stem)
        single = RunFolder(out or Path("runs") / loaded.name)
        if SweepFolder(single.path).is_one():
            raise StateError(f"{single.path} holds a sweep, and this is a single experiment. Give another --out.")
        runs, path, show = [(loaded, single)], single.path, partial(_show, single.path, as_json=as_json)
        if engine is None:
            _execute(loaded, single, quiet=quiet, as_json=as_json, every=checkpoint_seconds, track=track)
            return
    start = _engine(engine, workers, threads, address, checkpoint_seconds)
    tracking = [_tracking(folder, track) for _, folder in runs]
    failures = _work_off(runs, start, path, command, threads if engine else None, quiet or as_json, tracking)
    show()
    for one in tracking:
        one.finish()
        if not (quiet or as_json):
            _say_where(one)
    if failures:
        _tell(failures)
        raise typer.Exit(1)


@app.command(epilog="Example:  ctta report runs/demo")
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a sweep, complete or not.")],
    as_json: AsJson = False,
) -> None:
    """Make table and page again from what a run folder holds."""
    _show(folder, as_json=as_json)


@app.command(
    epilog="Examples:  ctta track runs/demo --to tensorboard    ctta track runs/demo --to mlflow=http://host:5000"
)
def track(
    folder: Annotated[Path, typer.Argument(help="A run folder, complete or not.")],
    to: Annotated[
        str, typer.Option(metavar=TRACKER, help="tensorboard, mlflow, wandb, each with a place if you like.")
    ],
) -> None:
    """Write what a run folder holds, and they do not have yet, to TensorBoard, MLflow or Weights & Biases (offline)."""
    RunFolder(folder).run()
    failures: list[str] = []
    tracking = trackers.Tracking(RunFolder(folder), to, failures.append)
    tracking.finish()
    _say_where(tracking)
    if failures:
        raise StateError("\n".join(failures))


@app.command(epilog="Example:  ctta adapt my_model.py:make photos/ -o predictions.csv --report runs/photos")
def adapt(
    model: Annotated[
        str,
        typer.Argument(help="embedded, a name from `ctta list models`, timm:... and its like, or file.py:function."),
    ],
    folder: Annotated[Path, typer.Argument(help="Images without labels, or clouds: a folder, an .npz or an .npy.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The table of predictions.")] = Path("predictions.csv"),
    method: Annotated[str, typer.Option(help="A name from `ctta list methods`.")] = "dss",
    preset: Annotated[str | None, typer.Option(help="Settings of the method; by the input without it.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting.")] = None,
    weights: Annotated[str | None, typer.Option(help="The file with the model's weights.")] = None,
    mean: Annotated[str | None, typer.Option(help="The model's normalisation, if not inside: .485,.456,.406")] = None,
    std: Annotated[str | None, typer.Option(help="The same: .229,.224,.225")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels: shorter side resized, middle square cut out.")] = None,
    batch: Annotated[int, typer.Option(help="Samples in a batch, at most.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the method.")] = 0,
    classes: Annotated[Path | None, typer.Option(help="Names of the classes: a text file, a line each.")] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="Look for changes of domain, for methods that use them.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="A folder for the records and the page.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier table and page.")] = False,
    quiet: Quiet = False,
) -> None:
    """Try a method on samples of your own, without labels: predictions as CSV, written batch by batch.

    What cannot be read is left out, with a line that says why.
    """
    plan = plan_adaptation(
        model,
        folder,
        method=method,
        preset=preset,
        changes=_fields(change or []),
        weights=weights,
        mean=_numbers(mean),
        std=_numbers(std),
        size=size,
        batch=batch,
        seed=seed,
        classes=classes,
        detect=detect,
    )
    console, summary = Console(stderr=True), None
    if not quiet:
        console.print(plan.describe(), highlight=False, markup=False)
    try:
        with _bar(console, quiet) as bar:
            task = bar.add_task(plan.cell.label, total=len(plan.samples))
            for summary in plan.run(out, report, force=force, command=shlex.join(["ctta", *sys.argv[1:]])):
                bar.update(task, completed=summary.done)
    except KeyboardInterrupt:
        done = 0 if summary is None else summary.done
        console.print(f"\nStopped. {out} holds the first {done} of {len(plan.samples)} samples.")
        raise typer.Exit(130) from None
    assert summary is not None
    lines = [*summary.describe(), f"Predictions: {out}"]
    lines += [f"Report: {summary.page.resolve().as_uri()}"] if summary.page else []
    for line in lines:
        Console().print(line, soft_wrap=True, highlight=False, markup=False)


@app.command(epilog="Example:  ctta train train.yaml -o model.safetensors --set train.epochs=30")
def train(
    settings: Annotated[Path, typer.Argument(help="A YAML file with the sections data, test, model and train.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The weights; beside them, the log.")],
    change: Set = None,
    force: Annotated[bool, typer.Option("--force", help="Begin anew, over an earlier training.")] = False,
    quiet: Quiet = False,
    checkpoint_seconds: Every = 30.0,
) -> None:
    """Train a source model where none can be had. Stopped or killed, the same command goes on where it was."""
    training = trainer.load(settings, change or [])
    console, last = Console(stderr=True), None
    try:
        with _bar(console, quiet) as bar:
            task = bar.add_task("starting", total=None)
            for state in trainer.train(training, out, force=force, checkpoint_seconds=checkpoint_seconds):
                bar.update(task, completed=state.done, total=state.total, description=f"loss {state.loss:.3f}")
                if state.ended:
                    last = state.ended
                    bar.console.print(_epoch_line(last, training.train.epochs), highlight=False)
    except KeyboardInterrupt:
        console.print("\nStopped. The same command goes on from the last checkpoint.")
        raise typer.Exit(130) from None
    assert last is not None
    how = f"test error {last.test_error:.2f} %" if last.test_error is not None else f"train error {last.error:.2f} %"
    Console().print(f"{out}: {how}", soft_wrap=True, highlight=False, markup=False)


@app.command("list", epilog="Examples:  ctta list methods    ctta list methods dss    ctta list corruptions")
def list_(
    what: Annotated[str, typer.Argument(help="methods, models, datasets, protocols or corruptions")] = "methods",
    name: Annotated[str | None, typer.Argument(help="One of them: its settings.")] = None,
    as_json: AsJson = False,
) -> None:
    """What there is: methods with what they need and their settings, models, data sets, protocols, corruptions."""
    rows: list[dict[str, Any]]
    if what == "corruptions":
        rows = [{"corruption": one, "set": "paper" if one in PAPER else "extra"} for one in NAMES]
    elif what == "models":
        rows = [
            {"model": key, "classes": entry.num_classes, "input": _by(entry.input_shape), "weights": entry.note}
            for key, entry in MODELS.items()
        ]
    elif what == "datasets" and name is None:
        rows = [{"data set": key, "title": one.title, "path": one.about} for key, one in DATASETS.items()]
    elif what == "datasets":
        if name not in DATASETS:
            raise ConfigError(f"There is no data set {name!r}. {nearest(str(name), DATASETS)}")
        unused = set(SPECIAL) - set(DATASETS[str(name)].uses)
        rows = [dict(zip(FIELD, row, strict=True)) for row in Data.describe() if row[0] not in unused]
    elif what == "protocols" and name is None:
        rows = [{"protocol": key, "what it does": (kind.__doc__ or "").splitlines()[0]} for key, kind in KINDS.items()]
    elif what == "protocols":
        if name not in KINDS:
            raise ConfigError(f"There is no protocol {name!r}. {nearest(str(name), KINDS)}")
        rows = [dict(zip(FIELD, row, strict=True)) for row in KINDS[str(name)].describe()]
    elif what == "methods" and name is None:
        rows = [{"method": key, **needs(asdict(kind.traits))} for key, kind in METHODS.items()]
        if as_json or Console().width > 120:
            rows = [{**row, "what it does": _summary(METHODS[row["method"]])} for row in rows]
    elif what == "methods":
        if name not in METHODS:
            raise ConfigError(f"There is no method {name!r}. {nearest(str(name), METHODS)}")
        rows = [dict(zip(FIELD, row, strict=True)) for row in METHODS[str(name)].config_type.describe()]
    else:
        lists = ("methods", "models", "datasets", "protocols", "corruptions")
        raise ConfigError(f"There is no list of {what!r}. {nearest(what, lists)}")
    if as_json:
        print(json.dumps(rows))
    else:
        Console().print(_plain_table(rows))


@app.command(epilog="Example:  ctta corrupt photos/ out/ --corruption fog,snow --severity 1-5")
def corrupt(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A folder of images, an .npz, or the CIFAR pickles.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where the corrupted set goes.")],
    corruption: Annotated[str, typer.Option(help="all, paper, extra, or names with commas.")] = "all",
    severity: Annotated[str, typer.Option(help="1-5, 5, or 1,3,5.")] = "1-5",
    preset: Annotated[str | None, typer.Option(help="Constants: cifar or imagenet; by image size without it.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the corruptions.")] = 0,
    form: Annotated[str, typer.Option("--format", help="cifar-c, imagenet-c, or auto.")] = "auto",
    frost: Annotated[Path | None, typer.Option(help="A folder with the public frost photographs.")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a corrupted set in the public formats (CIFAR-C, ImageNet-C). Stopped, the same command goes on."""
    plan = plan_corruption(
        source, out, parse_corruptions(corruption), parse_severities(severity), preset, seed, form, frost
    )
    console = Console(stderr=True, quiet=quiet)
    console.print(plan.describe())
    with _bar(console, quiet) as bar:
        task = bar.add_task("corrupting", total=plan.total)
        for state in plan.run():
            bar.update(task, completed=state.done, description=f"{state.corruption} {state.severity}")
    console.print(f"Done: {out}")


@app.command(epilog="Example:  ctta check experiment.yaml")
def check(
    experiment: Annotated[Path, typer.Argument(help="A YAML file.")],
    change: Set = None,
) -> None:
    """Look at everything before hours are spent: settings, files, model, every method on a batch, the source error."""
    console, problems = Console(), 0
    styles = {"fact": "", "remark": "[yellow]note:[/] ", "problem": "[bold red]problem:[/] "}
    for found in checks.check(experiments.read_yaml(experiment, change or [])):
        problems += found.kind == "problem"
        console.print(f"{found.about:<9}{styles[found.kind]}{_escape(found.text)}", soft_wrap=True, highlight=False)
    rest = shlex.join([str(experiment), *(word for one in change or [] for word in ("--set", one))])
    if problems:
        console.print(
            f"{problems} problem{'s' if problems > 1 else ''}. Mend, then:  ctta check {rest}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
        raise typer.Exit(2)
    console.print(f"All is well. Next:  ctta run {rest}", soft_wrap=True, markup=False, highlight=False)


def main() -> None:
    """Errors that a user can mend are one message, not a traceback."""
    sys.path.append(str(Path.cwd()))  # a factory may lie where the command is typed
    try:
        app()
    except CttaError as error:
        Console(stderr=True).print(f"[bold red]error[/] {_escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _execute(
    experiment: Experiment, folder: RunFolder, *, quiet: bool, as_json: bool, every: float, track: str = ""
) -> None:
    console = Console(stderr=True)
    quiet = quiet or as_json
    tracking = _tracking(folder, track)
    command = shlex.join(["ctta", *sys.argv[1:]])
    worked = False
    try:
        with _bar(console, quiet) as bar:
            task = bar.add_task("starting", total=None)
            for state in runner.execute(experiment, folder, checkpoint_seconds=every, command=command):
                worked = True
                what = f"{state.cell.label}: {state.record.domain}"
                bar.update(task, completed=state.done, total=state.total, description=what)
                tracking.follow()
    except KeyboardInterrupt:
        tracking.close()
        console.print(f"\nStopped. What was done is kept in {folder.path}; the same command goes on from there.")
        raise typer.Exit(130) from None
    if not worked and not quiet:
        console.print(f"All of it was done before, in {folder.path}.")
    _show(folder.path, as_json=as_json)
    tracking.finish()
    if not quiet:
        _say_where(tracking)


def _tracking(folder: RunFolder, to: str) -> trackers.Tracking:
    return trackers.Tracking(folder, to, lambda words: Console(stderr=True).print(words, markup=False, soft_wrap=True))


def _say_where(tracking: trackers.Tracking) -> None:
    for command in tracking.look():
        Console().print(f"Tracked: {command}", soft_wrap=True, highlight=False, markup=False)


def _engine(
    name: str | None, workers: int | None, threads: int, address: str, every: float
) -> Callable[[Sequence[engines.Job]], engines.Events]:
    if name is None:
        return partial(engines.here, checkpoint_seconds=every)
    if name == "ray":
        return partial(engines.on_ray, address=address, workers=workers, threads=threads, checkpoint_seconds=every)
    most = workers or max(1, (os.cpu_count() or 1) // threads)
    return partial(engines.local, workers=most, threads=threads, checkpoint_seconds=every)


def _work_off(
    runs: Sequence[tuple[Experiment, RunFolder]],
    start: Callable[[Sequence[engines.Job]], engines.Events],
    path: Path,
    command: str,
    threads: int | None,
    quiet: bool,
    tracking: Sequence[trackers.Tracking],
) -> list[engines.Event]:
    """All cells of all runs under one bar; what failed, if anything did."""
    console, state = Console(stderr=True), None
    try:
        with _bar(console, quiet) as bar:
            task = bar.add_task("opening", total=len(runs))
            plan = engines.plan(runs, command, threads, lambda count: bar.update(task, completed=count))
            bar.reset(task, total=plan.batches, completed=plan.done, description="starting")
            with closing(start(plan.jobs)) as events:
                for state in engines.follow(plan, events):
                    at = f"{state.over}/{len(plan.jobs)} cells"
                    if state.last and state.last.domain:
                        at += f" {state.last.job.cell.label}: {state.last.domain}"
                    bar.update(task, completed=state.batches, description=f"{at:.40}")
                    for one in tracking:
                        one.follow()
    except KeyboardInterrupt:
        for one in tracking:
            one.close()
        console.print(f"\nStopped. What was done is kept in {path}; the same command goes on from there.")
        raise typer.Exit(130) from None
    if state is None and not quiet:
        console.print(f"All of it was done before, in {path}.")
    return state.failures if state else []


def _tell(failures: Sequence[engines.Event]) -> None:
    console = Console(stderr=True)
    for event in failures:
        where = f"{event.job.cell.cell} in {event.job.folder}"
        console.print(f"[bold red]failed[/] {_escape(where)}", highlight=False, soft_wrap=True)
        console.print(event.error, highlight=False, soft_wrap=True, markup=False)
    count = f"{len(failures)} cell{'s' if len(failures) > 1 else ''} failed"
    console.print(f"{count}; the others are kept. The same command tries again.", soft_wrap=True)


def _show(path: Path, *, as_json: bool) -> None:
    """Tables of a run or a sweep on the terminal; tables and page in its folder."""
    made = reports.load(path)
    page = made.write()
    if as_json:
        print(json.dumps({**made.to_json(), "report": str(page)}))
        return
    console = Console()
    for shown in made.to_rich(console.width):
        console.print(shown, soft_wrap=isinstance(shown, str))
    console.print(f"Report: {page.resolve().as_uri()}", soft_wrap=True)


def _bar(console: Console, quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=quiet,
    )


class _Rate(ProgressColumn):
    """Batches a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "-/s")


def _epoch_line(epoch: trainer.Epoch, epochs: int) -> str:
    tested = "" if epoch.test_error is None else f"  test error {epoch.test_error:5.2f} %"
    return f"epoch {epoch.epoch}/{epochs}  loss {epoch.loss:.4f}  train error {epoch.error:5.2f} %{tested}"


def _fields(changes: Iterable[str]) -> dict[str, Any]:
    """field=value, the value in YAML."""
    made = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"A setting reads field=value. Got {text!r}.")
        made[name] = yaml.safe_load(value)
    return made


def _numbers(text: str | None) -> list[float] | None:
    """Numbers with commas between them."""
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"mean and std are numbers with commas between them: .485,.456,.406. Got {text!r}."
        ) from error


def _plain_table(rows: Iterable[dict[str, Any]]) -> Table:
    rows = list(rows)
    table = Table(*rows[0], box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(_escape(str(value)) for value in row.values()))
    return table


def _summary(kind: type[ctta.Adapter]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _by(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
