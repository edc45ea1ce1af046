"""One self-contained HTML page from a run folder. It loads nothing and works from disk."""

from __future__ import annotations

from pathlib import Path

from ctta.base.fileio import write_atomically
from ctta.records.run_folder import RunFolder
from ctta.report.page.page import render

__all__ = ["render", "write"]


def write(folder: RunFolder) -> Path:
    """Write `report.html` in the run folder."""
    path = folder.path / "report.html"
    write_atomically(path, render(folder).encode())
    return path
