"""DSS with known, unknown and detected domain boundaries: the same streams and seeds, one row each.

`python -m benchmarks.boundaries` writes results/boundaries.csv, and results/boundaries.json with how it was made.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.origin import embedded, origin
from ctta import DSS
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.protocols import KINDS
from ctta.models import embedded_model
from ctta.running.runner import evaluate

OUT = Path("results/boundaries")
BOUNDARIES = ("known", "unknown", "detected")
# Samples per domain, chosen so that no protocol takes much longer than the others.
PROTOCOLS: dict[str, tuple[int, dict[str, Any]]] = {
    "continual": (300, {}),
    "gradual": (100, {}),
    "recurring": (200, {"rounds": 3}),
}
SETTINGS = {"views": 8, "augmentation_threshold": 0.62}  # as in `ctta demo`
BATCH = 50


def compare(protocol: str, boundaries: str, seed: int, data: Data) -> dict[str, Any]:
    """Run DSS on one stream."""
    images, fields = PROTOCOLS[protocol]
    stream = open_stream(data.replace(images=images), KINDS[protocol].make({"kind": protocol, **fields}))
    found = "detected" if boundaries == "detected" else "known"
    adapter = DSS(embedded_model(), preset="cifar10", seed=seed, boundaries=found, **SETTINGS)  # type: ignore[arg-type]
    records = [one.record for one in evaluate(adapter, stream, tell=boundaries == "known")]
    mean = {name: sum(record.info[name] for record in records) / len(records) for name in ("threshold", "selected")}
    return {
        "protocol": protocol,
        "boundaries": boundaries,
        "seed": seed,
        "batches": len(records),
        "domains": len(stream.domains),
        "detected": int(sum(record.info.get("boundary", 0) for record in records)),
        "error": round(100 * sum(record.wrong for record in records) / sum(record.n for record in records), 2),
        "mean_threshold": round(mean["threshold"], 3),
        "selected": round(mean["selected"], 3),
    }


def rows(seeds: int, cache: str | None) -> Iterator[dict[str, Any]]:
    """Give a row per protocol, seed and kind of boundaries."""
    data = Data.make({"domains": "paper", "batch": BATCH, "cache": cache})
    for protocol in PROTOCOLS:
        for seed in range(seeds):
            yield from (compare(protocol, boundaries, seed, data) for boundaries in BOUNDARIES)


def main() -> None:
    """Write each row as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.boundaries", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds of the method: 0, 1, ...")
    parser.add_argument("--cache", help="folder that caches corrupted images")
    parser.add_argument("--out", type=Path, default=OUT, help=f"path of the table without its suffix (default: {OUT})")
    given = parser.parse_args()
    about = {
        **origin(embedded(), range(given.seeds)),
        "method": {"method": "dss", "preset": "cifar10", **SETTINGS},
        "data": {"dataset": "embedded", "domains": "paper", "severity": 5, "batch": BATCH},
        "protocols": {name: {"images": images, **fields} for name, (images, fields) in PROTOCOLS.items()},
    }
    given.out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")
    with given.out.with_suffix(".csv").open("w", newline="") as file:
        writer = None
        for row in rows(given.seeds, given.cache):
            writer = writer or csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(row)


if __name__ == "__main__":
    main()
