"""What is made from the records of a run: tables, a self-contained HTML page, and the feed of trackers."""

from __future__ import annotations

from pathlib import Path

from ctta.base.fileio import write_atomically
from ctta.records.run_folder import RunFolder
from ctta.report.reports import RunReport

__all__ = ["render", "write"]


def render(folder: RunFolder) -> str:
    """The page of a run folder."""
    return RunReport.load(folder).page()


def write(folder: RunFolder) -> Path:
    """Write only the page of a run folder, `report.html`."""
    path = folder.path / "report.html"
    write_atomically(path, render(folder).encode())
    return path
