"""Continual test-time adaptation: keep a trained classifier accurate while the data it sees change.

adapter = ctta.DSS(model)
for x in stream:
    logits = adapter(x)

Only the names in `ctta.__all__` are public: those listed below and the class of every method. Everything else is
internal and may change without notice.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # type checkers and editors read this list; at run time, each name is imported when it is first used
    from ctta import models as models
    from ctta.base.errors import ConfigError as ConfigError
    from ctta.base.errors import CttaError as CttaError
    from ctta.base.errors import InputError as InputError
    from ctta.base.errors import ModelError as ModelError
    from ctta.base.errors import StateError as StateError
    from ctta.core import views as views
    from ctta.core.adapter import Adapter as Adapter
    from ctta.core.adapter import Step as Step
    from ctta.core.execution import Execution as Execution
    from ctta.core.networks import Normalized as Normalized
    from ctta.core.teacher import calibrate_gate as calibrate_gate
    from ctta.data import corruptions as corruptions
    from ctta.methods import *  # noqa: F403
    from ctta.methods import METHODS as METHODS
    from ctta.methods import create as create
else:

    def _listed(path: Path) -> dict[str, str]:
        """Read the names that a file imports as `from MODULE import NAME as NAME`, each with its module."""
        nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
        return {alias.asname: node.module for node in nodes for alias in node.names if alias.asname}

    _MODULES = _listed(Path(__file__)) | _listed(Path(__file__).parent / "methods" / "__init__.py")
    __all__ = sorted(_MODULES)

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if _MODULES[name] == __name__:
            return importlib.import_module(f"{__name__}.{name}")
        return getattr(__import__(_MODULES[name], fromlist=[name]), name)
