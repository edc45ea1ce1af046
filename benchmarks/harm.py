"""Do no harm: the error of adapters on hostile streams, beside that of the model they were given.

`python -m benchmarks.harm EXPERIMENT --set data.path=... --out results/harm.jsonl` takes data and model from an
experiment file. It runs every order x batch size x method x way of guarding, appends one line per cell, and skips the
cells that are there, so it can be stopped and goes on. `--show` prints the table of a file.

Ways: `batch` statistics as published, `auto` statistics, and `guarded`: auto with the guard.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctta import METHODS, Guard
from ctta.data.datasets import open_stream
from ctta.experiments import experiment as experiments
from ctta.experiments.sections import read_yaml

DOMAINS = ["clean", "gaussian_noise", "contrast", "jpeg_compression"]
SIZES = (1, 4, 16, 64, 200)
WAYS = ("batch", "auto", "guarded")
Domain = tuple[Tensor, Tensor]  # all its samples and labels
Batch = tuple[Tensor, Tensor, Tensor]  # samples, labels, and which of them count


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


def shuffled(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """One domain after the other, samples at random."""
    for number, (x, y) in enumerate(domains):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * seed + number))
        yield from batches(x[order], y[order], size)


def sorted_by_class(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """One domain after the other, each class by class."""
    for x, y in domains:
        order = y.argsort(stable=True)
        yield from batches(x[order], y[order], size)


def bursts(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """Runs of twelve samples of one class, in random order."""
    for number, (x, y) in enumerate(domains):
        runs = y.argsort(stable=True).split(12)
        turns = torch.randperm(len(runs), generator=torch.Generator().manual_seed(1000 * seed + number))
        order = torch.cat([runs[turn] for turn in turns])
        yield from batches(x[order], y[order], size)


def one_class(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """The most frequent class only, again and again, then all classes."""
    for x, y in domains:
        same = (y == y.mode().values).nonzero().flatten().repeat(4)
        yield from batches(x[same], y[same], size)
    yield from shuffled(domains, size, seed)


def alternating(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """Another domain with every batch."""
    streams = [list(shuffled([domain], size, seed)) for domain in domains]
    for turn in zip(*streams, strict=True):
        yield from turn


def clean(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """The clean domain only, three times."""
    for turn in range(3):
        yield from shuffled(domains[:1], size, seed + turn)


def dead_sensor(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """Every third batch is black, saturated or one grey; those do not count."""
    for number, (x, y, counts) in enumerate(shuffled(domains, size, seed)):
        yield x, y, counts
        if number % 3 == 2:
            yield torch.full_like(x, (0.0, 1.0, 0.5)[number // 3 % 3]), y, torch.zeros_like(counts)


def poisoned(domains: list[Domain], size: int, seed: int) -> Iterator[Batch]:
    """A fifth of the samples are noise; those do not count."""
    generator = torch.Generator().manual_seed(seed)
    for x, y, _ in shuffled(domains, size, seed):
        noise = torch.rand(x.shape, generator=generator)
        counts = torch.rand(len(y), generator=generator) >= 0.2
        yield torch.where(counts.view(-1, *[1] * (x.dim() - 1)), x, noise), y, counts


ORDERS: dict[str, Callable[[list[Domain], int, int], Iterator[Batch]]] = {
    "shuffled": shuffled,
    "sorted": sorted_by_class,
    "bursts": bursts,
    "one class": one_class,
    "alternating": alternating,
    "clean": clean,
    "dead sensor": dead_sensor,
    "poisoned": poisoned,
}


def batches(x: Tensor, y: Tensor, size: int) -> Iterator[Batch]:
    """Consecutive batches in which every sample counts."""
    for part, label in zip(x.split(size), y.split(size), strict=True):
        yield part, label, torch.ones_like(label, dtype=torch.bool)


def evaluate(model: nn.Module, domains: list[Domain], cell: Cell) -> dict[str, Any]:
    """Errors in percent of the adapter and of the source model over one stream, and what the guard did."""
    kind = METHODS[cell.method]
    preset = kind.preset_fields(kind.preset_name("paper", domains[0][0].shape))
    fields: dict[str, Any] = {"statistics": "batch" if cell.way == "batch" else "auto"}
    if "views" in kind.config_type.fields():
        fields["views"] = 4
    if cell.rate != 1:
        fields["lr"] = cell.rate * kind.config_type.make(preset).asdict()["lr"]
    adapter = kind(model, preset="paper", seed=cell.seed, **fields)
    guard = Guard(adapter) if cell.way == "guarded" else None
    wrong, source_wrong, above, longest = [], [], 0, 0
    for x, y, counts in ORDERS[cell.order](domains, cell.batch, cell.seed):
        answers, source = (guard or adapter)(x).argmax(1), adapter.source(x).argmax(1)
        wrong.append((answers != y)[counts])
        source_wrong.append((source != y)[counts])
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
                for way in WAYS:
                    for order in ORDERS:
                        yield Cell(network, order, size, method, way, 1, seed)
                    for rate in given.rates:
                        for order in ("shuffled", "sorted"):
                            yield Cell(network, order, size, method, way, rate, seed)


def show(path: Path) -> None:
    """Print, per network, batch size, method and way, the worst and the mean difference to the source model."""
    rows: dict[tuple[Any, ...], list[tuple[float, str]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        key = (row["network"], row["batch"], row["method"], row["way"])
        rows.setdefault(key, []).append((row["error"] - row["source"], f"{row['order']} x{row['rate']:g}"))
    for key, found in sorted(rows.items()):
        worst, where = max(found)
        mean = sum(value for value, _ in found) / len(found)
        print(*key, f"cells {len(found)}, worst {worst:+.1f} ({where}), mean {mean:+.1f}", sep=", ")


def main() -> None:
    """Run the cells that are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harm", description=__doc__)
    parser.add_argument("experiment", type=Path, nargs="?", help="file with the sections data and model")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--images", type=int, default=200, help="per domain")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--methods", nargs="+", default=["tent", "cotta", "dss"])
    parser.add_argument("--rates", type=float, nargs="+", default=[10, 100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.show:
        return show(given.out)
    values = read_yaml(given.experiment, given.changes)
    data = {**values["data"], "domains": DOMAINS, "images": given.images, "batch": given.images}
    made = experiments.make({"data": data, "model": values["model"], "methods": ["source"]}, given.experiment.stem)
    domains = [(batch.x, batch.y) for batch in open_stream(made.data)]
    model = made.model.load()
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    known = {tuple(row[name] for name in Cell.__dataclass_fields__) for row in done}
    for cell in cells(made.name, given):
        if tuple(asdict(cell).values()) not in known:
            with given.out.open("a") as file:
                file.write(json.dumps({**asdict(cell), **evaluate(model, domains, cell)}) + "\n")
    return None


if __name__ == "__main__":
    main()
