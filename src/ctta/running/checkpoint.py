"""An adapter's state on disk: written atomically, read without running code."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ctta.base.fileio import write_atomically
from ctta.core.adapter import Adapter


@dataclass(frozen=True)
class Checkpoint:
    """Where a cell was: the adapter's whole state after `step` batches."""

    step: int
    state: dict[str, Any]


def save(path: Path, adapter: Adapter, step: int) -> None:
    """The file is the old one or the new one, whatever happens."""
    buffer = io.BytesIO()
    torch.save({"step": step, "state": adapter.state_dict()}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> Checkpoint | None:
    """None where there is no file."""
    if not path.is_file():
        return None
    stored = torch.load(path, map_location="cpu", weights_only=True)
    return Checkpoint(stored["step"], stored["state"])
