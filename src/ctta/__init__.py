"""Continual test-time adaptation: keep a trained classifier accurate while the data it sees change.

adapter = ctta.DSS(model)
for x in stream:
    logits = adapter(x)

Only the names in `ctta.__all__` are public. Everything below this package is internal and may change without notice.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from ctta.api import *  # noqa: F403
else:
    # The public names are imported when the first of them is used: `ctta --help` needs none, and torch takes seconds.
    def __getattr__(name: str) -> Any:
        if name == "__all__" or not name.startswith("__"):
            api = importlib.import_module("ctta.api")
            if name == "__all__" or name in api.__all__:
                return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __getattr__("__all__")
