"""`ctta adapt`: a method on the user's own samples, without labels."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from ctta.cli.options import CHANGE, MODEL, Device, Mean, Quiet, Std, numbers
from ctta.cli.terminal import interruptible, progress_bar, say, typed

EXAMPLES = "Example:  ctta adapt my_model.py:make photos/ -o predictions.csv --report runs/photos"


def command(
    model: Annotated[str, Argument(help=MODEL)],
    folder: Annotated[Path, Argument(help="Unlabelled images or point clouds: a folder, .npz file or .npy file.")],
    out: Annotated[Path, Option("--out", "-o", help="CSV file for the predictions.")] = Path("predictions.csv"),
    method: Annotated[
        str, Option(help="A name from `ctta list methods`, or file.py:Class, whose code is run.")
    ] = "sift",
    preset: Annotated[str | None, Option(help="Preset of the method. Default: by the shape of the input.")] = None,
    change: Annotated[list[str] | None, Option("--set", metavar="FIELD=VALUE", help=CHANGE)] = None,
    weights: Annotated[str | None, Option(help="File with the weights of the model.")] = None,
    mean: Mean = None,
    std: Std = None,
    size: Annotated[int | None, Option(help="Resize the shorter side to SIZE pixels, crop the centre.")] = None,
    channels: Annotated[int, Option(help="1 for a model of grey pictures.")] = 3,
    batch: Annotated[int, Option(help="Samples per batch.")] = 64,
    seed: Annotated[int, Option(help="Seed of the method.")] = 0,
    classes: Annotated[Path | None, Option(help="Text file with the names of the classes, one per line.")] = None,
    device: Device = None,
    detect: Annotated[bool, Option("--detect", help="Detect changes of domain, for methods that use them.")] = False,
    clean: Annotated[
        Path | None, Option(help="Samples of the source domain, for the guard: whether the model still knows them.")
    ] = None,
    guard: Annotated[bool, Option(help="Take back what the model has learned if it does harm.")] = True,
    strict: Annotated[bool, Option("--strict", help="Exit with code 3 if the guard found harm.")] = False,
    state: Annotated[Path | None, Option(help="File with what was learned before: read, and written back.")] = None,
    report: Annotated[Path | None, Option(help="Folder for the records and the page.")] = None,
    force: Annotated[bool, Option("--force", help="Overwrite earlier predictions and an earlier page.")] = False,
    quiet: Quiet = False,
) -> None:
    """Adapt a model to your own samples, without labels. Predictions go to a CSV file after every batch.

    Files that cannot be read are skipped, and the CSV file says why.
    """
    from ctta.core.device import AUTO
    from ctta.experiments.sections import override
    from ctta.report.reports import RunReport
    from ctta.running.adapt_folder import plan_adaptation
    from ctta.running.memory import keep_freed

    keep_freed()
    plan = plan_adaptation(
        model,
        folder,
        method=method,
        preset=preset,
        changes=override({}, change or []),
        weights=weights,
        mean=numbers(mean, "--mean"),
        std=numbers(std, "--std"),
        size=size,
        channels=channels,
        batch=batch,
        seed=seed,
        classes=classes,
        detect=detect,
        guard=guard,
        device=AUTO if device is None else device,
        clean=clean,
        state=state,
    )
    say(plan.describe(), error=True, quiet=quiet)
    done, total = 0, len(plan.samples)
    learned = f" {state} holds what was learned from them." if state else ""
    interrupted = interruptible(lambda: f"{out} holds the first {done} of {total} samples.{learned}")
    run = closing(plan.run(out, report, force=force, command=typed()))
    with interrupted, progress_bar(quiet) as bar, run as summaries:
        task = bar.add_task(plan.cell.label, total=total)
        for summary in summaries:
            done = summary.done
            bar.update(task, completed=done)
    page = [f"Report: {RunReport.load(report).write().resolve().as_uri()}"] if report else []
    kept = [f"State: {state}, after {plan.adapter.batches} batches in all"] if state else []
    for line in (*summary.describe(), f"Predictions: {out}", *kept, *page):
        say(line)
    if strict and summary.harm:
        raise Exit(3)
