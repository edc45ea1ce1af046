"""`python -m benchmarks` runs every benchmark, `python -m benchmarks views updates` those named."""

from __future__ import annotations

import argparse
import importlib
import importlib.util

NAMES = ("views", "updates", "corruptions", "cloud_corruptions")


def main() -> None:
    """Run the benchmarks one after the other; each prints its table."""
    present = [name for name in NAMES if importlib.util.find_spec(f"benchmarks.{name}")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, as ratios measured in one run.")
    parser.add_argument("names", nargs="*", help=f"which ones, of: {', '.join(present)}; all if none is named")
    names = parser.parse_args().names or present
    if unknown := [name for name in names if name not in present]:
        parser.error(f"There is no benchmark {', '.join(unknown)}. Choose from {', '.join(present)}.")
    for name in names:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
