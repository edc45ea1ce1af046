"""The state of an adapter in a method run: the file that `adapter.save` writes, with where the run was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctta.base.errors import StateError
from ctta.core.guard import Adapting
from ctta.core.saving import SavedAdapter


@dataclass(frozen=True)
class Checkpoint:
    """The state of an adapter after `step` batches."""

    step: int
    state: Mapping[str, Any]
    records_sha256: str  # of the lines of these batches in the records file


def save(path: Path, adapter: Adapting, step: int, records_sha256: str = "") -> None:
    """Write the whole state of an adapter after `step` batches."""
    adapter.save_with(path, {"step": step, "records_sha256": records_sha256})


def load(path: Path) -> Checkpoint | None:
    """Read a checkpoint; None if there is no file. One that is damaged is a StateError."""
    if not path.exists():
        return None
    saved = SavedAdapter.read(path)
    match saved.notes:
        case {"step": int(step), "records_sha256": str(sha256)} if step >= 0:
            return Checkpoint(step, saved.state, sha256)
    raise StateError(f"{path} is no checkpoint of a run: it does not say where the run was.")
