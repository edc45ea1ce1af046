"""The options that several verbs share."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

TRACKER = "NAME[=PLACE],..."
CHANGE = "Change a setting; can be repeated."
MODEL = (
    "embedded, a name from `ctta list models`, timm:NAME, torchvision:NAME, hf:NAME, or file.py:function, "
    "whose code is run."
)
DEVICE = (
    "cpu, cuda, cuda:1, mps, or auto: CUDA, else MPS, else the CPU. Default: auto, or that of the YAML file, if there "
    "is one."
)
Out = Annotated[Path | None, Option("--out", "-o", help="Run folder: records, tables, page. Default: runs/NAME.")]
Device = Annotated[str | None, Option("--device", help=DEVICE)]
Set = Annotated[list[str] | None, Option("--set", metavar="SECTION.FIELD=VALUE", help=CHANGE)]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show the result only, without a progress bar.")]
AsJson = Annotated[bool, Option("--json", help="Print the result as JSON, and nothing else.")]
Mean = Annotated[str | None, Option("--mean", help="Mean, if the model does not normalise: 0.485,0.456,0.406")]
Std = Annotated[str | None, Option("--std", help="Standard deviation, likewise: 0.229,0.224,0.225")]
Every = Annotated[float, Option("--checkpoint-seconds", help="Seconds between checkpoints.", hidden=True)]


def numbers(text: str | None, option: str) -> Any:
    """A list of numbers that an option gives, with commas between them; the settings check that they are numbers."""
    from ctta.base import plain_yaml

    return None if text is None else plain_yaml.parse(f"[{text}]", option)
