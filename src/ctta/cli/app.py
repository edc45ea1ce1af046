"""The verbs of `ctta`. Exit codes: 0 done, 1 some runs failed, 2 something has to be fixed first, 130 interrupted."""

from __future__ import annotations

import sys
from pathlib import Path

from typer import Typer

from ctta.base.errors import CttaError
from ctta.cli import adapt, check, corrupt, demo, report, run, track, train
from ctta.cli import list as list_
from ctta.cli.terminal import say

ABOUT = "Continual test-time adaptation: keep a trained classifier accurate while the data it sees change."
SETTINGS = {"help_option_names": ["-h", "--help"]}

app = Typer(name="ctta", help=ABOUT, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=SETTINGS)
for verb in (demo, run, report, track, adapt, train, list_, corrupt, check):
    app.command(verb.__name__.rpartition(".")[2], epilog=verb.EXAMPLES)(verb.command)


def main() -> None:
    """Run a command. An error that the user can fix is shown as one message, not as a traceback."""
    sys.path.append(str(Path.cwd()))  # so that a factory is found in the folder where the command is typed
    try:
        app(prog_name="ctta")
    except CttaError as error:
        say(("error ", "bold red"), str(error), error=True)
        sys.exit(2)
