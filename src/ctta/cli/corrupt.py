"""`ctta corrupt`: a corrupted data set in the public formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ctta.cli.options import Quiet
from ctta.cli.terminal import interruptible, progress_bar, say

EXAMPLES = "Example:  ctta corrupt photos/ out/ --corruption fog,snow --severity 1-5"


def command(
    source: Annotated[Path, Argument(metavar="IN", help="Folder of images, .npz file, or folder of CIFAR pickles.")],
    out: Annotated[Path, Argument(metavar="OUT", help="Folder for the corrupted data set.")],
    corruption: Annotated[str, Option(help="all, paper, extra, or names separated by commas.")] = "all",
    severity: Annotated[str, Option(help="For example 1-5, 5, or 1,3,5.")] = "1-5",
    preset: Annotated[
        str | None, Option(help="Constants: cifar or imagenet. Default: by the size of the images.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of the corruptions.")] = 0,
    form: Annotated[str, Option("--format", help="cifar-c, imagenet-c, or auto.")] = "auto",
    frost: Annotated[Path | None, Option(help="Folder with the public frost photographs.")] = None,
    quiet: Quiet = False,
) -> None:
    """Corrupt images in the format of CIFAR-C or ImageNet-C. If it is interrupted, the same command continues it."""
    from ctta.data.export import parse_corruptions, parse_severities, plan_corruption

    corruptions, severities = parse_corruptions(corruption), parse_severities(severity)
    plan = plan_corruption(source, out, corruptions, severities, preset, seed, form, frost)
    say(plan.describe(), error=True, quiet=quiet)
    with interruptible(lambda: f"The same command continues in {out}."), progress_bar(quiet) as bar:
        task = bar.add_task("corrupting", total=plan.total)
        for state in plan.run():
            bar.update(task, completed=state.done, description=f"{state.corruption} {state.severity}")
    say(f"Done: {out}", error=True, quiet=quiet)
