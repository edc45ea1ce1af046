"""The command line: one file per verb, each thin over the library and importing what it needs when it is called."""

import sys


def main() -> None:
    """Run a command; Ctrl-C is a sentence also while the command line itself is being imported."""
    try:
        from ctta.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("\nStopped before anything was done.", file=sys.stderr)
        sys.exit(130)
