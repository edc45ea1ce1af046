"""An adapter's state on disk: written atomically, read without running code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from ctta.base.fileio import write_atomically
from ctta.core.adapter import Adapter


def save(path: Path, adapter: Adapter, step: int) -> None:
    """Write the whole state of an adapter after `step` batches."""
    buffer = io.BytesIO()
    torch.save({"step": step, "state": adapter.state_dict()}, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any] | None:
    """Read the `step` and the `state`; None if there is no file."""
    return torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None
