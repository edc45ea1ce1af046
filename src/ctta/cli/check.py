"""`ctta check`: an experiment, inspected before it runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit

from ctta.base.limits import PROBLEMS
from ctta.base.text import message
from ctta.cli.options import Device, Set
from ctta.cli.terminal import say

EXAMPLES = "Example:  ctta check experiment.yaml"
HEADS = {"fact": ("", ""), "remark": ("note: ", "yellow"), "problem": ("problem: ", "bold red")}


def command(
    experiment: Annotated[Path, Argument(help="YAML file.")], change: Set = None, device: Device = None
) -> None:
    """Check an experiment before it runs: settings, files, model, every method on one batch, the source error."""
    from ctta.experiments.check import check
    from ctta.experiments.sections import put, read_yaml

    problems, values = 0, read_yaml(experiment, change or [])
    for finding in check(put(values, "execution.device", device) if device is not None else values):
        problems += finding.kind == "problem"
        if finding.kind != "problem" or problems <= PROBLEMS:
            say(f"{finding.about:<10}", HEADS[finding.kind], message(finding.text))
    given = [word for one in change or [] for word in ("--set", one)]
    rest = shlex.join([str(experiment), *given, *(["--device", device] if device is not None else [])])
    if problems:
        say(f"{problems} problem{'s' if problems > 1 else ''}. Fix, then check again:  ctta check {rest}")
        raise Exit(2)
    say(f"No problems found. Next:  ctta run {rest}")
