"""Do no harm: the error of adapters on hostile streams, beside that of the model they were given.

`python -m benchmarks.harm EXPERIMENT --set data.path=... --out results/harm_matrix.jsonl` takes data and model from an
experiment file. It runs every order x batch size x method x way of guarding, appends one line per cell as it comes, and
skips the cells that are there, so it can be stopped and goes on. Lines do not say how many images there are per domain:
another number needs another file. All cells of all networks take days; `--sample 50` runs 50 of a network's cells,
drawn at random and always the same ones. `--show` prints the table of a file, and what share of cells like these is, at
most, more than a point worse than the source model, with 95 % confidence.

Orders are protocols of `ctta run` and draw from the cell's seed. Ways: `batch` statistics as published, `auto`
statistics, and `guarded`: auto with the guard.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from scipy.stats import beta
from torch import nn

from benchmarks.origin import add_origin, hashes, origin
from ctta import METHODS, Guard
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.protocols import KINDS, Protocol
from ctta.data.stream import Stream
from ctta.experiments import experiment as experiments
from ctta.experiments.sections import read_yaml

DOMAINS = {
    "images": (CLEAN, "gaussian_noise", "contrast", "jpeg_compression"),
    "clouds": (CLEAN, "gaussian", "cutout", "rotation"),
}
SIZES = (1, 4, 16, 64, 200)
WAYS = ("batch", "auto", "guarded")
ORDERS: Mapping[str, Mapping[str, Any]] = {
    "shuffled": {"kind": "bursts", "length": 1},
    "sorted": {"kind": "sorted"},
    "bursts": {"kind": "bursts", "length": 12},
    "one class": {"kind": "one_class", "repeats": 4},
    "alternating": {"kind": "segments", "shortest": 1, "longest": 1},
    "clean": {"kind": "bursts", "length": 1},
    "dead sensor": {"kind": "dead_sensor", "every": 4},
    "poisoned": {"kind": "poisoned", "share": 0.2},
}
AT_HIGHER_RATES = ("shuffled", "sorted")


@dataclass(frozen=True)
class Cell:
    """One stream and one way of adapting to it."""

    network: str
    order: str
    batch: int
    method: str
    way: str
    rate: float  # times the published learning rate
    seed: int


def protocol(order: str, seed: int) -> Protocol:
    """The protocol of an order, with draws of its own."""
    kind = KINDS[ORDERS[order]["kind"]]
    return kind.make({**ORDERS[order], **({"seed": seed} if "seed" in kind.fields() else {})})


def arrange(data: Data, order: str, batch: int, seed: int) -> Stream:
    """Open the data in an order; `clean` is the clean domain three times, each shuffled in its own way."""
    domains = (CLEAN,) * 3 if order == "clean" else data.domains
    return open_stream(data.replace(domains=domains, batch=batch), protocol(order, seed))


def evaluate(model: nn.Module, data: Data, cell: Cell) -> dict[str, Any]:
    """Errors in percent of the adapter and of the source model over one stream, and what the guard did."""
    stream, kind = arrange(data, cell.order, cell.batch, cell.seed), METHODS[cell.method]
    preset = kind.preset_fields(kind.preset_name("paper", next(iter(stream)).x.shape))
    fields: dict[str, Any] = {"statistics": "batch" if cell.way == "batch" else "auto"}
    if "views" in kind.config_type.fields():
        fields["views"] = 4
    if cell.rate != 1:
        fields["lr"] = cell.rate * kind.config_type.make(preset).asdict()["lr"]
    adapter = kind(model, preset="paper", seed=cell.seed, **fields)
    guard = Guard(adapter) if cell.way == "guarded" else None
    wrong, source_wrong, above, longest = [], [], 0, 0
    for batch in stream:
        answers, source = batch.answer((guard or adapter)(batch.x)), batch.answer(adapter.source(batch.x))
        wrong.append((answers != batch.y)[batch.y >= 0])
        source_wrong.append((source != batch.y)[batch.y >= 0])
        above = above + 1 if wrong[-1].sum() > source_wrong[-1].sum() else 0
        longest = max(longest, above)
    own, source_error = (100 * float(torch.cat(part).float().mean()) for part in (wrong, source_wrong))
    return {
        "samples": int(sum(len(part) for part in wrong)),
        "error": round(own, 2),
        "source": round(source_error, 2),
        "longest_above_source": longest,
        "events": [] if guard is None else [[event.batch, event.kind] for event in guard.events],
    }


def cells(network: str, given: argparse.Namespace) -> Iterator[Cell]:
    """Every cell of one network: all orders at the published rate, higher rates on two of them."""
    for seed in given.seeds:
        for size in given.sizes:
            for method in given.methods:
                for way in given.ways:
                    for order in given.orders:
                        for rate in (1, *(given.rates if order in AT_HIGHER_RATES else ())):
                            yield Cell(network, order, size, method, way, rate, seed)


def drawn(every: list[Cell], sample: int | None) -> list[Cell]:
    """So many of the cells, in a random order that is always the same; all of them, in their own order, if None."""
    return every if sample is None else random.Random(0).sample(every, len(every))[:sample]


def at_most(bad: int, cells: int) -> float:
    """Upper bound of the share of bad cells with 95 % confidence (Clopper and Pearson), if so many are found bad."""
    return 1.0 if bad == cells else float(beta.ppf(0.95, bad + 1, cells - bad))


def show(path: Path) -> None:
    """Print, per network, batch size, method and way, the worst and the mean difference to the source model."""
    rows: dict[tuple[Any, ...], list[tuple[float, str]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        where = f"{row['order']} x{row['rate']:g}"
        for key in ((row["network"], row["batch"], row["method"], row["way"]), ("all cells", row["way"])):
            rows.setdefault(key, []).append((row["error"] - row["source"], where))
    for key, found in sorted(rows.items(), key=lambda item: (item[0][0] == "all cells", item[0])):
        worst, where = max(found)
        mean, bad = sum(value for value, _ in found) / len(found), sum(value > 1 for value, _ in found)
        print(*key, f"cells {len(found)}, worst {worst:+.1f} ({where}), mean {mean:+.1f}", end="", sep=", ")
        print(f", above a point {bad}, at most {at_most(bad, len(found)):.1%}" if key[0] == "all cells" else "")


def finished(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; one that was cut short is taken off."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]


def main() -> None:
    """Run the cells that are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harm", description=__doc__)
    parser.add_argument("experiment", type=Path, nargs="?", help="file with the sections data and model")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--network", help="its name in the file (default: the name of the experiment)")
    parser.add_argument("--images", type=int, default=200, help="per domain")
    parser.add_argument("--domains", nargs="+", help=f"default: {' '.join(DOMAINS['images'])}; others for clouds")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS), metavar="ORDER")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["tent", "cotta", "dss"], metavar="METHOD")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rates", type=float, nargs="*", default=[10, 100], help="beside the published one")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sample", type=int, metavar="N", help="run N of these cells, drawn at random")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.show:
        return show(given.out)
    values = read_yaml(given.experiment, given.changes)
    data, model = values.get("data", {}), values.get("model", {})
    dataset = DATASETS[data.get("dataset", Data.dataset)]
    with TemporaryDirectory() as cache:
        fixed = {"images": given.images, "domains": given.domains or list(DOMAINS[dataset.samples])}
        kept = {"cache": cache} if dataset.holds == "clean" else {}
        sections = {"data": {**kept, **data, **fixed}, "model": model, "methods": ["source"]}
        made = experiments.make(sections, given.network or given.experiment.stem)
        network = made.model.load()
        add_origin(given.out, {"network": made.name, **origin(hashes(made.data, network), given.seeds)})
        known = {tuple(row[name] for name in Cell.__dataclass_fields__) for row in finished(given.out)}
        for cell in drawn(list(cells(made.name, given)), given.sample):
            if tuple(asdict(cell).values()) not in known:
                row = {**asdict(cell), **evaluate(network, made.data, cell)}
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(*asdict(cell).values(), f"{row['error']} (source {row['source']})", flush=True)
    return None


if __name__ == "__main__":
    main()
