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
class SavedState:
    """The whole state of an adapter after `step` batches."""

    step: int
    state: dict[str, Any]


def save(path: Path, adapter: Adapter, step: int) -> None:
    """Replace the file as a whole: it is the old one or the new one, whatever happens."""
    buffer = io.BytesIO()
    torch.save({"step": step, "state": adapter.state_dict()}, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> SavedState | None:
    """Read the state; None if there is no file."""
    return SavedState(**torch.load(path, map_location="cpu", weights_only=True)) if path.is_file() else None
