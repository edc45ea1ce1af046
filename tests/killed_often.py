"""Runs the command line again and again, and kills it at the n-th call of a function that runs, writes or locks.

A script, for a test: `killed_often.py 30,500,0 run ...` makes three attempts, of which the last is left alone, and
prints how each ended. Attempts are forks, so that the imports are paid once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import FrameType
from typing import Any

import torch._dynamo  # noqa: F401  which an optimiser imports

import ctta.report.reports
import ctta.report.trackers
import ctta.running.run  # noqa: F401
from ctta.cli.app import main

PLACES = ("/ctta/running/", "/ctta/records/", "/ctta/base/fileio.py", "/ctta/base/lock.py")


class KillAt:
    """Ends the process at the n-th call, or return, in these places."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "return") and any(place in frame.f_code.co_filename for place in PLACES):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def attempt(count: int, words: list[str]) -> int:
    """Run the command in a process of its own; returns how it ended."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        sys.argv = ["ctta", *words]
        sys.setprofile(KillAt(count))
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


if __name__ == "__main__":
    _, moments, *words = sys.argv
    print(*(attempt(int(moment), words) for moment in moments.split(",")))
