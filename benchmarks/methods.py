"""What every method costs: time a batch over one plain forward pass of the same batch, and memory over the model's own.

All of it in one process, in turns, on random weights. A plain pass is float32, NCHW, eval mode, without gradient; one
is timed before each turn, so that both sides of a ratio see the same machine. A turn makes a fresh adapter and steps
it, twice and on while `PATIENCE` lasts; the first step only warms up.

Mean teachers run with the gate open, so that they make all their views; those that ask the source are to ask it. Their
columns:

    / 33         time over that of 33 plain passes, one for each of 32 views and one for the student
    views %      time spent on making views, over that of the teacher's passes
    updates %    time spent on optimiser, moving average and restore, over that of the step
    / public     time over that of `reference_cotta`, which does what public code does
"""

from __future__ import annotations

import copy
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks import memory
from benchmarks.cost_chart import draw_chart
from benchmarks.reference_cotta import ReferenceCoTTA
from ctta import METHODS, Adapter, Execution
from ctta.core.teacher import MeanTeacher
from ctta.core.views import default_views
from ctta.models import MODELS
from ctta.running.environment import environment
from ctta.running.memory import PeakMemory, keep_freed

OUT = Path("runs/bench/bench.json")
ERRORS = Path("results/cifar10_resnet20.csv")  # of the first setting's network
OPEN = 0.999  # a gate that asks the source, which is never so sure with random weights
PATIENCE = 0.5  # seconds
REFERENCE = "CoTTA, reference"
MEGABYTE = 2**20


@dataclass(frozen=True)
class Setting:
    """A network and a batch."""

    title: str
    model: str  # in MODELS
    shape: tuple[int, ...]
    rounds: int = 3
    views: int = 32

    def quick(self) -> Setting:
        """Small enough to see whether everything runs; the numbers mean little."""
        return replace(self, shape=(max(2, self.shape[0] // 10), *self.shape[1:]), rounds=1, views=4)


SETTINGS = (
    Setting("ResNet-20, CIFAR", "cifar_resnet20", (200, 3, 32, 32)),
    Setting("WRN-28-10, CIFAR", "wrn28_10", (4, 3, 32, 32)),
    Setting("ResNet-50, 224 px", "resnet50", (4, 3, 224, 224)),
    Setting("PointNet, 1024 points", "pointnet", (16, 1024, 3)),
)

# Ways to run DSS besides the default, which is the paper's in float32: the variant of its preset and the precision.
DSS_VARIANTS: Mapping[str, tuple[str, Execution]] = {
    "DSS, bfloat16": ("paper", Execution(precision="bfloat16")),
    "DSS, autocast": ("paper", Execution(precision="autocast")),
    "DSS, weighed": ("weighed", Execution()),
    "DSS, weighed, bfloat16": ("weighed", Execution(precision="bfloat16")),
    "DSS, lean": ("lean", Execution()),
    "DSS, lean, bfloat16": ("lean", Execution(precision="bfloat16")),
    "DSS, lean, autocast": ("lean", Execution(precision="autocast")),
}


@dataclass(frozen=True)
class Goal:
    """A number of one row, and how large it may be. They are set for the first setting."""

    text: str
    label: str
    value: str  # a field of Row
    limit: float


GOALS = (
    Goal("float32, time over 33 plain passes", "DSS", "passes_ratio", 1.15),
    Goal("bfloat16, time over 33 plain passes", "DSS, bfloat16", "passes_ratio", 0.6),
    Goal("views over the teacher's passes", "DSS", "views_share", 0.15),
    Goal("updates over the step", "DSS", "updates_share", 0.05),
    Goal("lean, time over the reference CoTTA's", "DSS, lean, bfloat16", "reference_ratio", 0.1),
    Goal("lean in autocast, the same", "DSS, lean, autocast", "reference_ratio", 0.1),
)


class Stopwatch:
    """Seconds spent in calls that were put under it, by name; of all threads together."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.turn = threading.Lock()

    def watch(self, name: str, owner: object, *attributes: str) -> None:
        """Replace methods of one object, not of its class, by ones that are timed."""
        for attribute in attributes:
            setattr(owner, attribute, self.timed(name, getattr(owner, attribute)))

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = call(*args, **kwargs)
            taken = time.perf_counter() - start
            with self.turn:
                self.seconds[name] += taken
            return result

        return wrapper

    def share(self, part: str, whole: str) -> float | None:
        """One over the other, where both were watched."""
        return self.seconds[part] / self.seconds[whole] if part in self.seconds and whole in self.seconds else None


class WatchedViews:
    """Views under the stopwatch, one at a time or many."""

    def __init__(self, views: Any, watch: Stopwatch) -> None:
        self.one, self.many = watch.timed("views", views), watch.timed("views", views.many)

    def __call__(self, *args: Any) -> Any:
        return self.one(*args)


@dataclass(frozen=True)
class Subject:
    """What is measured: a step gives its forward and backward passes."""

    step: Callable[[], tuple[float, int]]
    watch: Stopwatch


Make = Callable[[], Subject]


@dataclass(frozen=True)
class Turn:
    """What one turn gave."""

    seconds: float
    megabytes: float
    forwards: float
    backwards: int
    views_share: float | None
    updates_share: float | None


@dataclass(frozen=True)
class Row:
    """One line of the table; medians over the rounds."""

    label: str
    method: str
    seconds: float
    forward_ratio: float
    images_per_second: float
    forwards: float
    backwards: int
    peak_megabytes: float  # beyond the model and the batch
    peak_ratio: float  # over the model's own bytes
    # Of mean teachers alone.
    passes_ratio: float | None
    views_share: float | None
    updates_share: float | None
    reference_ratio: float | None


def random_model(name: str) -> nn.Module:
    """The network with fixed random weights, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name].build().eval()


def random_batch(shape: tuple[int, ...]) -> Tensor:
    """Smooth images in [0, 1], or points in the unit cube."""
    generator = torch.Generator().manual_seed(0)
    if len(shape) == 3:
        return torch.rand(shape, generator=generator) * 2 - 1
    coarse = torch.rand(*shape[:2], shape[2] // 4, shape[3] // 4, generator=generator)
    return nn.functional.interpolate(coarse, size=shape[2:], mode="bilinear")


def adapter_subject(
    kind: type[Adapter],
    model: nn.Module,
    x: Tensor,
    views: int | None,
    variant: str = "paper",
    execution: Execution | None = None,
) -> Subject:
    """A method under the stopwatch. Without a number of views, the variant's own."""
    preset = kind.preset_name(variant, x.shape)
    fields: dict[str, Any] = {}
    if issubclass(kind, MeanTeacher) and kind.preset_fields(preset)["gate"] < 1:
        fields["gate"] = OPEN
    if views is not None and hasattr(kind.config_type, "views"):
        fields["views"] = views
    adapter = kind(model, preset=preset, execution=execution, **fields)
    adapter.prepare([(x, torch.arange(len(x)) % adapter.classes)] * 2)
    watch = Stopwatch()
    if isinstance(adapter, MeanTeacher):
        adapter.views = WatchedViews(default_views(x, adapter.config.draw), watch)
        memory.around_passes(adapter.teacher, partial(watch.timed, "teacher"))
        watch.watch("updates", adapter, "descend", "follow", "restore")

    def step() -> tuple[float, int]:
        info = adapter.step(x).info
        if isinstance(adapter, MeanTeacher) and info["views"] == 0:
            raise SystemExit(f"{kind.title} made no views: the source is too sure of its answers for a gate of {OPEN}.")
        return info["forwards"].item(), int(info["backwards"])

    return Subject(step, watch)


def reference_subject(model: nn.Module, x: Tensor, views: int) -> Subject:
    """The reference CoTTA under the stopwatch."""
    reference, watch = ReferenceCoTTA(model, views=views, gate=OPEN), Stopwatch()
    watch.watch("views", reference, "view")
    memory.around_passes(reference.teacher, partial(watch.timed, "teacher"))
    watch.watch("updates", reference, "follow", "restore")
    watch.watch("updates", reference.optimizer, "step")

    def step() -> tuple[float, int]:
        reference(x)
        return reference.forwards, 1

    return Subject(step, watch)


def subjects(model: nn.Module, x: Tensor, views: int) -> dict[str, tuple[str, Make]]:
    """The method's name and how to make it afresh, by label: all methods, variants of DSS, the reference for images."""

    def maker(kind: type[Adapter], variant: str = "paper", execution: Execution | None = None) -> tuple[str, Make]:
        own = views if variant == "paper" else None
        return kind.name, lambda: adapter_subject(kind, model, x, own, variant, execution)

    made = {kind.title: maker(kind) for kind in METHODS.values()}
    made |= {label: maker(METHODS["dss"], *variant) for label, variant in DSS_VARIANTS.items()}
    if x.dim() == 4:
        made[REFERENCE] = ("cotta", lambda: reference_subject(model, x, views))
    return made


def take_turn(make: Make, patience: float) -> Turn:
    """Make it, step it to warm up, then once more and on while patience lasts."""
    peak = PeakMemory()
    subject = make()
    step = subject.watch.timed("step", subject.step)
    seconds: list[float] = []
    while len(seconds) < 2 or sum(seconds) < patience:
        before = subject.watch.seconds["step"]
        forwards, backwards = step()
        seconds.append(subject.watch.seconds["step"] - before)
    views, updates = subject.watch.share("views", "teacher"), subject.watch.share("updates", "step")
    return Turn(median(seconds[1:]), peak.megabytes(), forwards, backwards, views, updates)


def warm_up(model: nn.Module, x: Tensor) -> None:
    """A training step on a copy: libraries are loaded and threads started before anything is measured."""
    twin = copy.deepcopy(model)
    optimizer = torch.optim.Adam(twin.parameters(), fused=True)
    twin(x).sum().backward()
    optimizer.step()


@torch.no_grad()
def plain_seconds(model: nn.Module, x: Tensor) -> float:
    """One plain forward pass, after another that warms up."""
    model(x)
    start = time.perf_counter()
    model(x)
    return time.perf_counter() - start


def measure(
    made: Mapping[str, tuple[str, Make]],
    model: nn.Module,
    x: Tensor,
    *,
    rounds: int,
    views: int,
    patience: float = PATIENCE,
) -> dict[str, Any]:
    """A row for each subject on this network and batch, and what they are measured against."""
    warm_up(model, x)
    peak = PeakMemory()
    plain = [plain_seconds(model, x)]
    plain_peak = peak.megabytes()
    turns: dict[str, list[Turn]] = {label: [] for label in made}
    for turn in range(rounds):
        for label in list(made)[:: 1 if turn % 2 == 0 else -1]:
            plain.append(plain_seconds(model, x))
            turns[label].append(take_turn(made[label][1], patience))
    size, forward = memory.network_bytes(model), median(plain)
    seconds = {label: median(turn.seconds for turn in taken) for label, taken in turns.items()}

    def row(label: str) -> Row:
        taken = turns[label]
        megabytes = median(turn.megabytes for turn in taken)
        teacher = taken[0].views_share is not None
        return Row(
            label=label,
            method=made[label][0],
            seconds=seconds[label],
            forward_ratio=seconds[label] / forward,
            images_per_second=len(x) / seconds[label],
            forwards=taken[-1].forwards,
            backwards=taken[-1].backwards,
            peak_megabytes=megabytes,
            peak_ratio=megabytes * MEGABYTE / size,
            passes_ratio=seconds[label] / (forward * (views + 1)) if teacher else None,
            views_share=known_median(turn.views_share for turn in taken),
            updates_share=known_median(turn.updates_share for turn in taken),
            reference_ratio=seconds[label] / seconds[REFERENCE] if teacher and REFERENCE in seconds else None,
        )

    return {
        "shape": list(x.shape),
        "rounds": rounds,
        "views": views,
        "model_megabytes": size / MEGABYTE,
        "plain_seconds": forward,
        "plain_peak_megabytes": plain_peak,
        "rows": [asdict(row(label)) for label in made],
    }


def known_median(values: Iterable[float | None]) -> float | None:
    """The median of what was measured, if anything was."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was asked for beside what was measured."""
    by_label = {row["label"]: row for row in rows}
    found = [(goal, by_label[goal.label][goal.value]) for goal in GOALS]
    return [{**asdict(goal), "measured": value, "met": value <= goal.limit} for goal, value in found]


def show(result: Mapping[str, Any]) -> Table:
    """The table of one setting."""
    plain, peak = f"{1000 * result['plain_seconds']:.0f} ms", f"{result['plain_peak_megabytes']:.0f} MB"
    table = Table(title=f"{result['title']}, batch {result['shape'][0]}; a plain pass takes {plain} and {peak}")
    table.add_column("method", no_wrap=True)
    for head in (
        "s",
        "x plain",
        "img/s",
        "fwd",
        "bwd",
        "MB",
        "x model",
        f"/ {result['views'] + 1}",
        "views %",
        "updates %",
        "/ public",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    for row in result["rows"]:
        table.add_row(
            row["label"],
            f"{row['seconds']:.3f}",
            f"{row['forward_ratio']:.1f}",
            f"{row['images_per_second']:.1f}",
            f"{row['forwards']:g}",
            str(row["backwards"]),
            f"{row['peak_megabytes']:.0f}",
            f"{row['peak_ratio']:.1f}",
            *(
                "" if row[name] is None else f"{scale * row[name]:.{digits}f}"
                for name, scale, digits in (
                    ("passes_ratio", 1, 2),
                    ("views_share", 100, 0),
                    ("updates_share", 100, 1),
                    ("reference_ratio", 1, 2),
                )
            ),
        )
    return table


def show_goals(found: list[dict[str, Any]]) -> Table:
    """The goals."""
    table = Table("goal", "measured", "at most", "met", title="Goals")
    for goal in found:
        table.add_row(goal["text"], f"{goal['measured']:.3f}", f"{goal['limit']:g}", "yes" if goal["met"] else "no")
    return table


def main(*, quick: bool = False, rounds: int | None = None, out: Path = OUT, errors: Path | None = None) -> None:
    """Print the tables; write them as JSON, and the chart of cost against error beside it where errors are known."""
    console = Console(width=max(120, Console().width))
    results = []
    keep_freed()
    for setting in SETTINGS:
        if setting.model not in MODELS:
            continue
        setting = setting.quick() if quick else setting
        model, x = random_model(setting.model), random_batch(setting.shape)
        made = subjects(model, x, setting.views)
        measured = measure(made, model, x, rounds=rounds or setting.rounds, views=setting.views)
        results.append({"title": setting.title, "model": setting.model, **measured})
        console.print(show(results[-1]))
    found = goals(results[0]["rows"])
    console.print(show_goals(found))
    held = memory.measure(random_model("wrn28_10"), random_batch((2 if quick else 10, 3, 32, 32)), gate=OPEN)
    console.print(memory.show(held))

    waiting = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY"), "freed memory": "kept"}
    document = {
        "environment": environment() | waiting,
        "quick": quick,
        "goals": found,
        "settings": results,
        "memory": held,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    charts = draw_chart(results[0], errors or ERRORS, out.parent) if errors or ERRORS.is_file() else []
    console.print(f"Written: {', '.join(str(path) for path in (out, *charts))}")
    if quick:
        console.print("This was a quick look: small batches, few views. The numbers mean little.")
