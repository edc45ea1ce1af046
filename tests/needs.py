"""Things that some tests need and not every machine has: the real data, a browser, Ray."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

DATA = Path(os.environ.get("CTTA_DATA", Path(__file__).parents[2] / "shared" / "data"))


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it if CTTA_REQUIRE_ALL is set."""
    (pytest.fail if os.environ.get("CTTA_REQUIRE_ALL") else pytest.skip)(what)
