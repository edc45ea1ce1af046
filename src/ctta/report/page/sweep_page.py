"""The page of a sweep: its tables, with a link to each point's own page."""

from __future__ import annotations

from ctta.records.sweep_folder import text
from ctta.report.page import templates
from ctta.report.tables.sweep import SweepErrors, table


def make(made: SweepErrors) -> str:
    """One page."""
    parts = [("Averages", table(made, True))] if made.averages else []
    parts.append(("Points", table(made)))
    axes = [(key, key in made.head.over, list(map(text, values))) for key, values in made.head.axes.items()]
    return templates.fill("sweep.html.jinja", {"head": made.head, "parts": parts, "axes": axes})
