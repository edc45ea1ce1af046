"""The command line as a user types it: started as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent
PATIENCE = 120  # seconds after which a test gives up; none needs a tenth of it


def start(*arguments, **options):
    # A shell that starts the tests in the background has them ignore the signal.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from ctta.cli import main; main()"
    python_path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": python_path, "COLUMNS": "160"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ctta(*arguments):
    process = start(*arguments)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def wait_for(path, process):
    """Wait until a process has made a file; fail if it ends without, or takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, f"it ended without {path}: {process.communicate()}"
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)
