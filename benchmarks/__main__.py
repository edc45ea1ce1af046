"""`python -m benchmarks` runs every benchmark, `python -m benchmarks views updates` those named."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path

from benchmarks import methods

NAMES = ("methods", "views", "updates", "corruptions", "cloud_corruptions")


def main() -> None:
    """Run the benchmarks one after the other; each prints its table."""
    present = [name for name in NAMES if importlib.util.find_spec(f"benchmarks.{name}")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, as ratios measured in one run.")
    parser.add_argument("names", nargs="*", help=f"which ones, of: {', '.join(present)}; all if none is named")
    of_methods = parser.add_argument_group("methods", "time and memory of every method")
    of_methods.add_argument("--quick", action="store_true", help="small batches and few views: does it run?")
    of_methods.add_argument("--rounds", type=int, help="turns of each method, 3")
    of_methods.add_argument("--out", type=Path, default=methods.OUT, help=f"where the JSON goes, {methods.OUT}")
    of_methods.add_argument("--errors", type=Path, help=f"table.csv of a run, for the chart; else {methods.ERRORS}")
    given = vars(parser.parse_args())
    names = given.pop("names") or present
    if unknown := [name for name in names if name not in present]:
        parser.error(f"There is no benchmark {', '.join(unknown)}. Choose from {', '.join(present)}.")
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        module.main(**given) if name == "methods" else module.main()


if __name__ == "__main__":
    main()
