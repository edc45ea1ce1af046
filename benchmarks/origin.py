"""Where numbers come from: what every file in `results/` says of itself, as `ctta report --keep` does for tables."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.models import embedded_model, weights_hash
from ctta.running.environment import environment


def origin(files: Mapping[str, str], seeds: Iterable[int] = (0,)) -> dict[str, Any]:
    """The command of this process, its seeds, hashes of data and weights, and the environment with the commit."""
    command = shlex.join(["python", *sys.orig_argv[1:]])
    return {"command": command, "seeds": list(seeds), "files": dict(files), "environment": environment()}


def add_origin(table: Path, made: dict[str, Any]) -> None:
    """For a table to which several commands add rows: NAME.json lists them all, each once."""
    made["environment"].pop("date")
    known = origins(table)
    if made not in known:
        table.with_suffix(".json").write_text(json.dumps({"runs": [*known, made]}, indent=1) + "\n")


def origins(table: Path) -> list[dict[str, Any]]:
    """The commands that have added rows to a table so far."""
    path = table.with_suffix(".json")
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    return found


def hashes(data: Data, model: nn.Module) -> dict[str, str]:
    """What the data and the weights hold, as `ctta run` records it."""
    return {"data": open_stream(data).fingerprint or str(data.path), "weights": weights_hash(model)}


def embedded() -> dict[str, str]:
    """The hashes of the embedded data and model."""
    return hashes(Data(), embedded_model())
