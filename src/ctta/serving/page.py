"""The live page: one self-contained document in the style of the report."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'sha256-{script}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def page() -> tuple[str, str]:
    """The document, and the policy under which a browser runs its script and loads nothing else."""
    here = files("ctta.serving")
    shared, own, script, document = (
        place.read_text(encoding="utf-8")
        for place in (
            files("ctta.report.page") / "style.css",
            here / "live.css",
            here / "live.js",
            here / "live.html",
        )
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made = document.replace("/*style*/", shared + own).replace("/*script*/", script)
    return made, POLICY.format(script=digest)
