"""The verbs of `ctta`.

Exit codes: 0 done, 1 some runs failed, 2 something has to be fixed first, 4 something unexpected, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Exit, Option, Typer

import ctta
from ctta.cli import adapt, check, check_method, corrupt, demo, report, run, serve, track, train
from ctta.cli import list as list_
from ctta.cli.failures import DEBUG, in_a_sentence

ABOUT = "Continual test-time adaptation: keep a trained classifier accurate while the data it sees change."
SETTINGS = {"help_option_names": ["-h", "--help"]}

app = Typer(name="ctta", help=ABOUT, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=SETTINGS)
for verb in (demo, run, report, track, adapt, serve, train, list_, corrupt, check, check_method):
    app.command(verb.__name__.rpartition(".")[2].replace("_", "-"), epilog=verb.EXAMPLES)(in_a_sentence(verb.command))


def _version(asked: bool) -> None:
    if asked:
        print(f"ctta {ctta.__version__}")
        raise Exit


@app.callback()
def before_the_verb(
    debug: Annotated[bool, Option(DEBUG, help="Show tracebacks of errors, too.")] = False,
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """The options before the verb; `failures` looks for the first one."""


def main() -> None:
    """Run a command."""
    sys.path.append(str(Path.cwd()))  # so that a factory is found in the folder where the command is typed
    words = [word for word in sys.argv[1:] if word != DEBUG]
    app([DEBUG, *words] if DEBUG in sys.argv else words, prog_name="ctta")
