"""What the guard costs: the time of guarded steps over that of the same steps without it, measured in turns.

`python -m benchmarks.guard_cost --out results/guard_cost.json`. A turn is as many batches as there are between two
comparisons, of a healthy stream on the embedded default, so that the guard's own rhythm is in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctta
from benchmarks.origin import embedded, origin
from benchmarks.timing import medians
from ctta import Guard
from ctta.core.adapter import Adapter
from ctta.core.guard import FIRST
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.models.load import embedded_model


def measure(method: str, batch: int, rounds: int) -> dict[str, Any]:
    """Seconds of three batches without and with the guard, which is past its trial and its first comparisons."""
    data = Data(domains=("gaussian_noise",), images=batch * 20, batch=batch)
    batches = [each.x for each in open_stream(data)]

    def steps(adapter: Adapter | Guard) -> Callable[[], None]:
        def turn() -> None:
            start = adapter.batches
            for number in range(start, start + 3):
                adapter(batches[number % len(batches)])

        return turn

    adapters = [ctta.METHODS[method](embedded_model()) for _ in range(2)]
    plain, guarded = adapters[0], Guard(adapters[1])
    guarded.state = replace(guarded.state, trial=0)
    warm = -(-FIRST // 3)
    seconds = medians({"plain": steps(plain), "guarded": steps(guarded)}, rounds=rounds, warm_up=warm)
    ratio = round(seconds["guarded"] / seconds["plain"], 3)
    return {"method": method, "batch": batch, "ratio": ratio, "alarms": len(guarded.events)}


def main() -> None:
    """Measure TENT and DSS, and write the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard_cost", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["tent", "dss"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = [measure(method, given.batch, given.rounds) for method in given.methods]
    given.out.write_text(json.dumps({**origin(embedded()), "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(f"{row['method']}: {row['ratio']:.2f} of a step without the guard, batch {row['batch']}")


if __name__ == "__main__":
    main()
