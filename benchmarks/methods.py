"""Cost of every method: time per batch over one plain forward pass of the same batch, and memory over the model's.

Everything is measured in one process, interleaved, on random weights. A plain pass is float32, NCHW, eval mode, without
gradient; one is timed before each turn, so that both sides of a ratio see the same machine. A turn makes a new adapter
and steps it at least twice, for at least `PATIENCE` seconds; the first step is a warm-up.

Mean teachers run with an augmentation threshold that always asks for augmentations, after the source was evaluated if
the preset does so. Their columns:

    / 33         time over that of 33 plain passes, one per augmentation of 32 and one for the student
    views %      time to make augmented views, over the time of the teacher's passes
    updates %    time of optimiser, moving average and restore, over the time of the step
    / public     time over that of `reference_cotta`, which works as public code does
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
from benchmarks.origin import origin
from benchmarks.reference_cotta import ReferenceCoTTA
from ctta import METHODS, Adapter, Execution
from ctta.core.execution import FAST
from ctta.core.teacher import MeanTeacher
from ctta.core.views import default_views
from ctta.models import MODELS
from ctta.running.memory import PeakMemory, keep_freed

OUT = Path("runs/bench/bench.json")
ERRORS = Path("results/cifar10_resnet20.csv")  # of the first setting's network
OPEN = 0.999  # an augmentation threshold that no source with random weights reaches
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
        """A smaller setting, to see whether everything runs; its numbers mean little."""
        return replace(self, shape=(max(2, self.shape[0] // 10), *self.shape[1:]), rounds=1, views=4)


SETTINGS = (
    Setting("ResNet-20, CIFAR", "cifar_resnet20", (200, 3, 32, 32)),
    Setting("WRN-28-10, CIFAR", "wrn28_10", (4, 3, 32, 32)),
    Setting("ResNet-50, 224 px", "resnet50", (4, 3, 224, 224)),
    Setting("PointNet, 1024 points", "pointnet", (16, 1024, 3)),
)

# Ways to run DSS besides the paper's preset in float32 with the execution of `ctta run`: the variant of its preset, and
# the execution. One view at a time is what the library does unless it is told otherwise.
DSS_VARIANTS: Mapping[str, tuple[str, Execution]] = {
    "DSS, one view at a time": ("paper", Execution()),
    "DSS, bfloat16": ("paper", FAST.replace(precision="bfloat16")),
    "DSS, autocast": ("paper", FAST.replace(precision="autocast")),
    "DSS, fast": ("fast", FAST),
    "DSS, fast, one view at a time": ("fast", Execution()),
    "DSS, fast, bfloat16": ("fast", FAST.replace(precision="bfloat16")),
    "DSS, fast, autocast": ("fast", FAST.replace(precision="autocast")),
}


@dataclass(frozen=True)
class Goal:
    """The largest allowed value of a number of one row, in the first setting."""

    text: str
    label: str
    value: str  # a field of Row
    limit: float


GOALS = (
    Goal("float32, time over 33 plain passes", "DSS", "passes_ratio", 1.15),
    Goal("bfloat16, time over 33 plain passes", "DSS, bfloat16", "passes_ratio", 0.6),
    Goal("augmentation over the teacher's passes", "DSS", "views_share", 0.15),
    Goal("updates over the step", "DSS", "updates_share", 0.05),
    Goal("fast preset, time over the reference CoTTA's", "DSS, fast, bfloat16", "reference_ratio", 0.1),
    Goal("fast preset in autocast, the same", "DSS, fast, autocast", "reference_ratio", 0.1),
)


class Stopwatch:
    """Counts the seconds of watched calls by name, over all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.turn = threading.Lock()

    def watch(self, name: str, owner: object, *attributes: str) -> None:
        """Replace methods of one object, not of its class, by timed ones."""
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
        """The ratio of two names, if both were watched."""
        return self.seconds[part] / self.seconds[whole] if part in self.seconds and whole in self.seconds else None


class WatchedViews:
    """Augmentation under the stopwatch, one view at a time or many."""

    def __init__(self, views: Any, watch: Stopwatch) -> None:
        self.one, self.many = watch.timed("views", views), watch.timed("views", views.many)

    def __call__(self, *args: Any) -> Any:
        return self.one(*args)


@dataclass(frozen=True)
class Subject:
    """A measured method; a step returns its numbers of forward and backward passes."""

    step: Callable[[], tuple[float, int]]
    watch: Stopwatch


Make = Callable[[], Subject]


@dataclass(frozen=True)
class Turn:
    """Measurements of one turn."""

    seconds: float
    megabytes: float
    forwards: float
    backwards: int
    views_share: float | None
    updates_share: float | None


@dataclass(frozen=True)
class Row:
    """One row of the table; medians over the rounds."""

    label: str
    method: str
    seconds: float
    forward_ratio: float
    images_per_second: float
    forwards: float
    backwards: int
    peak_megabytes: float  # beyond the model and the batch
    peak_ratio: float  # over the model's own bytes
    # Only for mean teachers.
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
    execution: Execution = FAST,
    **fields: Any,
) -> Subject:
    """Put a method under the stopwatch; without a number of augmentations, the variant's own."""
    preset = kind.preset_name(variant, x.shape)
    if issubclass(kind, MeanTeacher) and kind.preset_fields(preset)["augmentation_threshold"] < 1:
        fields["augmentation_threshold"] = OPEN
    if views is not None and hasattr(kind.config_type, "views"):
        fields["views"] = views
    adapter = kind(model, preset=preset, execution=execution, **fields)
    adapter.prepare([(x, torch.arange(len(x)) % adapter.classes)] * 2)
    watch = Stopwatch()
    if isinstance(adapter, MeanTeacher):
        adapter.views = WatchedViews(default_views(x, adapter.config.draw), watch)
        memory.around_passes(adapter.teacher, partial(watch.timed, "teacher"))
        watch.watch("updates", adapter, "descend", "follow_student", "restore")

    def step() -> tuple[float, int]:
        info = adapter.step(x).info
        if isinstance(adapter, MeanTeacher) and info["views"] == 0:
            raise SystemExit(
                f"{kind.title} made no augmentations: the source is too confident for a threshold of {OPEN}."
            )
        return info["forwards"].item(), int(info["backwards"])

    return Subject(step, watch)


def reference_subject(model: nn.Module, x: Tensor, views: int) -> Subject:
    """Put the reference CoTTA under the stopwatch."""
    reference, watch = ReferenceCoTTA(model, views=views, augmentation_threshold=OPEN), Stopwatch()
    watch.watch("views", reference, "view")
    memory.around_passes(reference.teacher, partial(watch.timed, "teacher"))
    watch.watch("updates", reference, "follow", "restore")
    watch.watch("updates", reference.optimizer, "step")

    def step() -> tuple[float, int]:
        reference(x)
        return reference.forwards, 1

    return Subject(step, watch)


def subjects(model: nn.Module, x: Tensor, views: int) -> dict[str, tuple[str, Make]]:
    """Method name and maker by label: all methods, variants of DSS, and for images the reference."""

    def maker(kind: type[Adapter], variant: str = "paper", execution: Execution = FAST) -> tuple[str, Make]:
        own = views if variant == "paper" else None
        return kind.name, lambda: adapter_subject(kind, model, x, own, variant, execution)

    made = {kind.title: maker(kind) for kind in METHODS.values()}
    made |= {label: maker(METHODS["dss"], *variant) for label, variant in DSS_VARIANTS.items()}
    if x.dim() == 4:
        made[REFERENCE] = ("cotta", lambda: reference_subject(model, x, views))
    return made


def take_turn(make: Make, patience: float) -> Turn:
    """Make the subject, warm it up with one step, then step it at least once and while patience lasts."""
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
    """Train a copy for one step, so that libraries are loaded and threads started before anything is measured."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(x).sum().backward()
    optimizer.step()


@torch.no_grad()
def plain_seconds(model: nn.Module, x: Tensor) -> float:
    """Time one plain forward pass, after another one as a warm-up."""
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
    """Measure each subject on this network and batch, and the plain pass they are compared with."""
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
    """The median of the measured values, if there are any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the goals with the measurements."""
    by_label = {row["label"]: row for row in rows}
    found = [(goal, by_label[goal.label][goal.value]) for goal in GOALS]
    return [{**asdict(goal), "measured": value, "met": value <= goal.limit} for goal, value in found]


def show(result: Mapping[str, Any]) -> Table:
    """Make the table of one setting."""
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
    """Make the table of the goals."""
    table = Table("goal", "measured", "at most", "met", title="Goals")
    for goal in found:
        table.add_row(goal["text"], f"{goal['measured']:.3f}", f"{goal['limit']:g}", "yes" if goal["met"] else "no")
    return table


def main(*, quick: bool = False, rounds: int | None = None, out: Path = OUT, errors: Path | None = None) -> None:
    """Print the tables; write them as JSON, and the chart of cost against error if errors are known."""
    console = Console(width=max(120, Console().width))
    results = []
    keep_freed()
    for setting in SETTINGS:
        setting = setting.quick() if quick else setting
        model, x = random_model(setting.model), random_batch(setting.shape)
        made = subjects(model, x, setting.views)
        measured = measure(made, model, x, rounds=rounds or setting.rounds, views=setting.views)
        results.append({"title": setting.title, "model": setting.model, **measured})
        console.print(show(results[-1]))
    found = goals(results[0]["rows"])
    console.print(show_goals(found))
    held = memory.measure(
        random_model("wrn28_10"), random_batch((2 if quick else 10, 3, 32, 32)), augmentation_threshold=OPEN
    )
    console.print(memory.show(held))

    waiting = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY"), "freed memory": "kept"}
    made = origin({"weights": "random"})
    made["environment"] |= waiting
    document = {
        **made,
        "quick": quick,
        "goals": found,
        "settings": results,
        "memory": held,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    charts = draw_chart(results[0], errors or ERRORS, out) if errors or ERRORS.is_file() else []
    console.print(f"Written: {', '.join(str(path) for path in (out, *charts))}")
    if quick:
        console.print("This was a quick run with small batches and few augmentations. Its numbers mean little.")
