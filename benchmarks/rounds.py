"""Error of every method in every round of a recurring stream: which methods collapse, and when?

`python -m benchmarks.rounds RUN ... --out results/recurring20` reads the run folders of one experiment whose protocol
is recurring. It writes the table as CSV, and how it was made as JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ctta.records.run_folder import Record, RunFolder


def errors(records: Iterable[Record], domains: int) -> list[float]:
    """The error in percent per round of `domains` domains."""
    wrong: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    for record in records:
        wrong[record.position // domains] += record.wrong
        seen[record.position // domains] += record.n
    return [round(100 * wrong[turn] / seen[turn], 1) for turn in sorted(seen)]


def main() -> None:
    """Read the run folders and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of one experiment")
    parser.add_argument("--out", type=Path, required=True, help="path of the table without its suffix")
    given = parser.parse_args()
    folders = [RunFolder(path) for path in given.runs]
    first = folders[0].run()
    rounds = int(first.stream["protocol"]["rounds"])
    domains = len(first.stream["domains"]) // rounds
    rows = []
    for folder in folders:
        for cell in folder.run().cells:
            if folder.done(cell.cell):
                found = errors(folder.records(cell.cell), domains)
                rows.append([cell.label, cell.seed, *found])
    with given.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["method", "seed", *range(1, rounds + 1)])
        writer.writerows(rows)
    about = {
        "commands": [folder.run().command for folder in folders],
        "stream": {key: first.stream[key] for key in ("dataset", "images", "batch", "boundaries", "protocol")},
        "methods": {cell.label: cell.config for folder in folders for cell in folder.run().cells},
        "environment": first.environment,
    }
    given.out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
