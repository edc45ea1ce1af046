"""False alarms: how many healthy streams of 300 batches make the guard roll back.

`python -m benchmarks.false_alarms --out results/false_alarms.json` runs TENT at its published rate, with auto
statistics and the guard, on shuffled streams of the embedded data: clean images, and the four corruptions that are in
no table. A stream is healthy if its error is at most a point above the source model's. The file is written after every
stream, and a run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.origin import embedded, origin
from ctta import TENT, Guard
from ctta.data.corruptions import EXTRA
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import open_stream
from ctta.data.protocols import KINDS
from ctta.models.load import embedded_model

BATCH, BATCHES = 16, 300
DOMAINS = (CLEAN, *EXTRA)


def run(seed: int, cache: str) -> dict[str, Any]:
    """One stream: what the guard did, and the errors with and without adapting, in percent."""
    images = BATCH * BATCHES // len(DOMAINS)
    data = Data.make({"domains": list(DOMAINS), "images": images, "batch": BATCH, "cache": cache})
    stream = open_stream(data, KINDS["bursts"].make({"kind": "bursts", "length": 1, "seed": seed}))
    guard = Guard(TENT(embedded_model(), preset="paper", statistics="auto", seed=seed))
    wrong, source_wrong = 0, 0
    for batch in stream:
        wrong += int((guard(batch.x).argmax(1) != batch.y).sum())
        source_wrong += int((guard.source(batch.x).argmax(1) != batch.y).sum())
    events = [[event.batch, event.kind] for event in guard.events if event.kind != "changed"]
    samples = BATCH * len(stream)
    return {
        "seed": seed,
        "batches": len(stream),
        "error": round(100 * wrong / samples, 2),
        "source": round(100 * source_wrong / samples, 2),
        "events": events,
    }


def main() -> None:
    """Run the streams that are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_alarms", description=__doc__)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    logging.getLogger("ctta").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(given.out.read_text())["streams"] if given.out.exists() else []
    with TemporaryDirectory() as cache:
        for seed in range(len(rows), given.streams):
            rows.append(run(seed, cache))
            healthy = [row for row in rows if row["error"] <= row["source"] + 1]
            alarms = sum(any(kind in ("roll-back", "frozen") for _, kind in row["events"]) for row in healthy)
            about = origin(embedded(), [row["seed"] for row in rows])
            summary = {"healthy": len(healthy), "alarms": alarms, "batch": BATCH, "batches": BATCHES}
            given.out.write_text(json.dumps({**about, **summary, "streams": rows}, indent=1) + "\n")
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
