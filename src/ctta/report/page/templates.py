"""Fills the templates of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

HERE = files("ctta.report.page")


def fill(name: str, context: Mapping[str, Any]) -> str:
    """A page that loads nothing: styles and script are inside. All text in `context` is escaped."""
    environment = Environment(
        loader=PackageLoader("ctta.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (Markup((HERE / part).read_text(encoding="utf-8")) for part in ("style.css", "page.js"))
    return environment.get_template(name).render(style=style, script=script, **context)
