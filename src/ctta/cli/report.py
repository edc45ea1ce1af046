"""`ctta report`: tables and page from the records of a run or a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from ctta.base.errors import ConfigError
from ctta.cli.options import AsJson
from ctta.cli.terminal import say

EXAMPLES = "Examples:  ctta report runs/demo    ctta report --check results/demo.json"


def command(
    folder: Annotated[Path | None, Argument(help="Folder of a run or a sweep, complete or not.")] = None,
    as_json: AsJson = False,
    keep: Annotated[
        Path | None, Option(metavar="NAME", help="Also write the table to NAME.csv, and how it was made to NAME.json.")
    ] = None,
    check: Annotated[
        Path | None, Option(metavar="NAME.json", help="Only compare a table that was kept with its records.")
    ] = None,
) -> None:
    """Write the tables and the page of a run folder again, from its records."""
    from ctta.report import kept, reports

    if check is not None:
        say(kept.check(check, folder))
        return
    if folder is None:
        raise ConfigError("There is nothing to report. Give the folder of a run or a sweep, or --check NAME.json.")
    made = reports.load(folder)
    page = made.write()
    if keep is not None:
        kept.keep(made, keep)
    if as_json:
        print(json.dumps({**made.to_json(), "report": str(page)}))
        return
    for one in made.to_rich(Console().width):
        Console().print(one, soft_wrap=isinstance(one, Text), highlight=False)
    say(f"Report: {page.resolve().as_uri()}")
