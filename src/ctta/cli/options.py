"""The options that several verbs share."""

from pathlib import Path
from typing import Annotated

from typer import Option

TRACKER = "NAME[=PLACE],..."
CHANGE = "Change a setting; can be repeated."
MODEL = (
    "embedded, a name from `ctta list models`, timm:NAME, torchvision:NAME, hf:NAME, or file.py:function, "
    "whose code is run."
)
DEVICE = "cpu, cuda, cuda:1, mps, or auto: CUDA, else MPS, else the CPU. Default: auto, or as the YAML file says."
Out = Annotated[Path | None, Option("--out", "-o", help="Run folder: records, tables, page. Default: runs/NAME.")]
Device = Annotated[str | None, Option("--device", help=DEVICE)]
Set = Annotated[list[str] | None, Option("--set", metavar="SECTION.FIELD=VALUE", help=CHANGE)]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show the result only, without a progress bar.")]
AsJson = Annotated[bool, Option("--json", help="Print the result as JSON, and nothing else.")]
Every = Annotated[float, Option("--checkpoint-seconds", help="Seconds between checkpoints.", hidden=True)]
