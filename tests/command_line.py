"""The command line as a user types it, in a process of its own; this file, run as a script, is what is typed."""

from __future__ import annotations

import time

from forks import TESTS, Script

PATIENCE = 120  # seconds after which a test gives up; none needs a tenth of it


def start(*arguments, **options):
    return Script(TESTS / "command_line.py", *arguments, COLUMNS="160", **options)


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


if __name__ == "__main__":
    from ctta.cli import main

    main()
