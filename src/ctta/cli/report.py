"""`ctta report`: tables and page from the records of a run or a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Argument

from ctta.cli.options import AsJson
from ctta.cli.terminal import say

EXAMPLES = "Example:  ctta report runs/demo"


def command(
    folder: Annotated[Path, Argument(help="Folder of a run or a sweep, complete or not.")], as_json: AsJson = False
) -> None:
    """Write the tables and the page of a run folder again, from its records."""
    from ctta.report import reports

    made = reports.load(folder)
    page = made.write()
    if as_json:
        print(json.dumps({**made.to_json(), "report": str(page)}))
        return
    for one in made.to_rich(Console().width):
        Console().print(one, soft_wrap=isinstance(one, Text), highlight=False)
    say(f"Report: {page.resolve().as_uri()}")
