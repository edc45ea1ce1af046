"""An adapter's state on disk: written atomically with its checksum, read without running code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ctta.base.errors import StateError
from ctta.base.fileio import sealed, unsealed, write_atomically
from ctta.core.guard import Adapting


@dataclass(frozen=True)
class Checkpoint:
    """The state of an adapter after `step` batches."""

    step: int
    state: Mapping[str, Any]
    records_sha256: str  # of the lines of these batches in the records file


def save(path: Path, adapter: Adapting, step: int, records_sha256: str = "") -> None:
    """Write the whole state of an adapter after `step` batches."""
    buffer = io.BytesIO()
    torch.save({"step": step, "state": adapter.state_dict(), "records_sha256": records_sha256}, buffer)
    write_atomically(path, sealed(buffer.getvalue()))


def load(path: Path) -> Checkpoint | None:
    """Read a checkpoint; None if there is no file. One that is damaged is a StateError."""
    if not path.exists():
        return None
    content = unsealed(path)
    try:
        saved = Checkpoint(**torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    except Exception as error:  # its checksum fits, so somebody else made it
        raise StateError(f"{path} is no checkpoint of ctta ({error!r}).") from error
    fits = isinstance(saved.step, int) and isinstance(saved.state, Mapping) and isinstance(saved.records_sha256, str)
    if not fits or saved.step < 0:
        raise StateError(f"{path} is no checkpoint of ctta: its fields are of other kinds.")
    return saved
