"""`ctta demo`: the first command to try."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

from typer import Option

from ctta.base.lock import locked
from ctta.cli import run
from ctta.cli.options import AsJson, Device, Out, Quiet, Set

EXAMPLES = "Examples:  ctta demo --out runs/demo    ctta demo --clouds"


def command(
    out: Out = None,
    clouds: Annotated[bool, Option("--clouds", help="Point clouds instead of images (one minute).")] = False,
    fresh: Annotated[bool, Option("--fresh", help="Delete an earlier run in the folder first.")] = False,
    change: Set = None,
    device: Device = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods on fifteen corruptions of data that come with the package: tables and a page in two minutes."""
    name = "demo_clouds" if clouds else "demo"
    out = out or Path("runs") / name
    if fresh and (out / "run.json").exists():
        from ctta.records.run_folder import RunFolder

        with locked(out):
            RunFolder(out).remove()
    with as_file(files("ctta.assets").joinpath(f"{name}.yaml")) as path:
        run.command(path, out, change, device, quiet=quiet, as_json=as_json)
