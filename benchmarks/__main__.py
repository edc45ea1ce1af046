"""`python -m benchmarks` runs all benchmarks, `python -m benchmarks views updates` only these two."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks import methods

NAMES = ("methods", "views", "updates", "corruptions", "cloud_corruptions")


def main() -> None:
    """Run the benchmarks one after the other; each one prints its table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure speed, as ratios within one run."
    )
    parser.add_argument("names", nargs="*", help=f"which benchmarks: {', '.join(NAMES)}; all by default")
    of_methods = parser.add_argument_group("methods", "time and memory of every method")
    of_methods.add_argument(
        "--quick", action="store_true", help="small batches and few augmentations, to see whether everything runs"
    )
    of_methods.add_argument("--rounds", type=int, help="rounds per method (default: 3)")
    of_methods.add_argument(
        "--out", type=Path, default=methods.OUT, help=f"JSON file to write (default: {methods.OUT})"
    )
    of_methods.add_argument(
        "--errors", type=Path, help=f"table.csv of a run, for the chart (default: {methods.ERRORS})"
    )
    given = vars(parser.parse_args())
    names = given.pop("names") or NAMES
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"There is no benchmark {', '.join(unknown)}. Choose from {', '.join(NAMES)}.")
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        module.main(**given) if name == "methods" else module.main()


if __name__ == "__main__":
    main()
