"""Runs the command line and kills its process before or after the n-th call of a function. A script, for a test."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from ctta.cli import main


def kill(function: str, when: str, count: int) -> None:
    """Change `package.module:Class.method` so that its n-th call ends the process."""
    module, _, name = function.partition(":")
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original, calls = getattr(owner, last), 0

    def fatal(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if calls == count and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, last, fatal)


if __name__ == "__main__":
    _, function, when, count, *words = sys.argv
    kill(function, when, int(count))
    sys.argv = ["ctta", *words]
    main()
