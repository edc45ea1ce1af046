"""A run folder that looks like a real one: five methods, fifteen domains, plausible numbers, drawn images."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from ctta.records.run_folder import BINS, Cell, Done, Record, Run, RunFolder, Samples

DOMAINS = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
]
CLASSES = ["circle", "square", "triangle", "star", "cross", "ring", "moon", "house", "arrow", "bar"]


@dataclass(frozen=True)
class FakeMethod:
    label: str
    errors: tuple[float, ...]  # percent, one a domain
    seconds: float
    forwards: float
    backwards: int
    views: int
    memory: float
    overconfidence: float
    selects: bool = False


METHODS = {
    "source": FakeMethod(
        "Source", (72, 66, 73, 47, 54, 35, 42, 25, 41, 26, 9, 47, 27, 58, 30), 0.11, 1, 0, 0, 3.0, 0.14
    ),
    "bn_adapt": FakeMethod(
        "BN Adapt", (28, 26, 36, 13, 35, 14, 12, 17, 17, 15, 8, 13, 24, 20, 27), 0.12, 1, 0, 0, 4.0, 0.05
    ),
    "tent": FakeMethod("TENT", (25, 21, 29, 14, 31, 17, 14, 19, 19, 19, 12, 20, 26, 21, 25), 0.34, 1, 1, 0, 61.0, 0.11),
    "cotta": FakeMethod(
        "CoTTA", (24, 22, 26, 12, 28, 12, 10, 15, 14, 13, 8, 11, 19, 14, 18), 1.92, 18, 1, 16, 118.0, -0.03
    ),
    "dss": FakeMethod(
        "DSS", (24, 21, 25, 12, 27, 12, 10, 15, 14, 13, 7, 11, 18, 13, 17), 1.97, 18, 1, 16, 121.0, -0.05, selects=True
    ),
}


def write_fake_run(
    path: Path,
    *,
    seeds: tuple[int, ...] = (0,),
    methods: tuple[str, ...] = tuple(METHODS),
    domains: tuple[str, ...] = tuple(DOMAINS),
    batches: int = 10,
    size: int = 100,
    labelled: bool = True,
    stop_after: dict[str, int] | None = None,  # method: batches it got through
    invalid: str = "",  # a method whose result is not valid
    classes: tuple[str, ...] = tuple(CLASSES),
) -> RunFolder:
    folder = RunFolder(path)
    cells = tuple(
        Cell(f"{name}-s{seed}", name, METHODS[name].label, seed, "cifar10", _config(name))
        for name in methods
        for seed in seeds
    )
    folder.write_run(_run(cells, domains, batches, size, classes))
    for cell in cells:
        stop = (stop_after or {}).get(cell.method)
        records = _records(cell, domains, batches, size, labelled)[:stop]
        lines = "".join(_line(record) for record in records)
        folder.records_path(cell.cell).write_text(lines)
        folder.write_samples(cell.cell, _samples(cell, domains, labelled))
        if stop is None:
            folder.write_done(cell.cell, _done(cell, records, invalid == cell.method))
    return folder


def _line(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"


def _config(name: str) -> dict[str, object]:
    if name in ("source", "bn_adapt"):
        return {"statistics": "batch"} if name == "bn_adapt" else {}
    config: dict[str, object] = {"optimizer": "adam", "lr": 1e-3}
    if name in ("cotta", "dss"):
        config |= {"views": 16, "augmentation_threshold": 0.92, "ema": 0.999, "restore": 0.01}
    if name == "dss":
        config |= {"lambda_": 0.9, "delta": "sum", "threshold": "dynamic", "temperature": 0.6, "alpha": 0.05}
    return config


def _run(cells: tuple[Cell, ...], domains: tuple[str, ...], batches: int, size: int, classes: tuple[str, ...]) -> Run:
    return Run(
        name="demo",
        identity="3f9ac17e20",
        experiment={"stream": {"dataset": "shapes-c", "severity": 5}, "methods": [cell.method for cell in cells]},
        stream={
            "dataset": "shapes-c",
            "domains": [[name, 5] for name in domains],
            "images": batches * size,
            "batch": size,
            "boundaries": "known",
            "classes": list(classes),
        },
        cells=cells,
        environment={"python": "3.11.9", "torch": "2.13.0", "device": "cpu", "threads": 2, "commit": "1a2b3c4"},
        command="ctta run experiments/demo.yaml --out runs/demo",
        notes=("CoTTA and DSS average 16 views instead of the paper's 32, to keep the demo short.",),
    )


def _records(cell: Cell, domains: tuple[str, ...], batches: int, size: int, labelled: bool) -> list[Record]:
    method = METHODS[cell.method]
    random = np.random.default_rng([cell.seed, sum(map(ord, cell.method))])
    threshold = 1 / len(CLASSES)
    records = []
    for position, name in enumerate(domains):
        threshold = (threshold + 1 / len(CLASSES)) / 2 if position else threshold
        for batch in range(batches):
            learning = 1 + 0.25 * math.exp(-batch / 2) * (method.backwards > 0)
            error = min(method.errors[position % 15] / 100 * learning, 0.95)
            confidence = np.clip(random.beta(6 * (1 - error), 2.2 * error + 0.4, size), 0.12, 0.999)
            right = random.random(size) < np.clip(confidence - method.overconfidence, 0.02, 0.99)
            threshold = 0.9 * threshold + 0.1 * float(confidence.mean())
            chosen = confidence >= threshold * random.uniform(0.7, 1.0, size)
            info = {
                "confidence": float(confidence.mean()),
                "forwards": method.forwards,
                "backwards": float(method.backwards),
                "views": float(method.views),
                "skipped": 0.0,
            }
            record = Record(
                method=cell.method,
                seed=cell.seed,
                step=position * batches + batch,
                domain=name,
                severity=5,
                n=size,
                wrong=int((~right).sum()) if labelled else -1,
                seconds=method.seconds * float(random.uniform(0.9, 1.2)),
                info=info,
                position=position,
                bins=_bins(confidence, right),
            )
            if method.selects:
                record = replace(
                    record,
                    info={**info, "threshold": threshold, "selected": float(chosen.mean())},
                    selected=int(chosen.sum()),
                    selected_wrong=int((chosen & ~right).sum()) if labelled else -1,
                )
            records.append(record)
    return records


def _bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[tuple[int, float, int], ...]:
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return tuple(
        (int((index == b).sum()), float(confidence[index == b].sum()), int(right[index == b].sum()))
        for b in range(BINS)
    )


def _done(cell: Cell, records: list[Record], invalid: bool) -> Done:
    problems = ("3 batches had non-finite logits",) if invalid else ()
    n, wrong = sum(record.n for record in records), sum(record.wrong for record in records)
    seconds = sum(record.seconds for record in records)
    return Done(len(records), n, wrong, seconds, METHODS[cell.method].memory, not invalid, problems)


def _samples(cell: Cell, domains: tuple[str, ...], labelled: bool, each: int = 4) -> Samples:
    random = np.random.default_rng([cell.seed, 5])
    label = random.integers(0, len(CLASSES), len(domains) * each)
    position = np.repeat(np.arange(len(domains)), each)
    images = np.stack([_picture(int(c), domains[p], random) for c, p in zip(label, position, strict=True)])
    other = (label + random.integers(1, len(CLASSES), len(label))) % len(CLASSES)
    source = np.where(random.random(len(label)) < 0.55, other, label)
    errors = METHODS[cell.method].errors
    adapted = np.where(random.random(len(label)) < np.array(errors)[position % 15] / 100, other, label)
    return Samples(
        images=images,
        position=position,
        label=label if labelled else np.full_like(label, -1),
        source=source,
        adapted=adapted,
        confidence=random.uniform(0.4, 0.99, len(label)),
        selected=random.integers(0, 2, len(label)) if METHODS[cell.method].selects else np.full_like(label, -1),
    )


def _picture(class_: int, domain: str, random: np.random.Generator) -> NDArray[np.uint8]:
    ground = tuple(int(v) for v in random.integers(150, 240, 3))
    ink = tuple(int(v) for v in random.integers(20, 130, 3))
    image = Image.new("RGB", (64, 64), ground)
    draw = ImageDraw.Draw(image)
    x, y = (int(v) for v in random.integers(-6, 7, 2))
    box = (14 + x, 14 + y, 50 + x, 50 + y)
    sides = {2: 3, 3: 5, 7: 6, 8: 4}.get(class_)
    if class_ in (0, 5, 6):
        draw.ellipse(box, fill=ink if class_ != 5 else None, outline=ink, width=7)
        if class_ == 6:
            draw.ellipse((24 + x, 10 + y, 54 + x, 44 + y), fill=ground)
    elif sides:
        draw.regular_polygon((32 + x, 32 + y, 20), sides, rotation=int(random.integers(0, 40)), fill=ink)
    elif class_ == 4:
        draw.rectangle((28 + x, 12 + y, 36 + x, 52 + y), fill=ink)
        draw.rectangle((12 + x, 28 + y, 52 + x, 36 + y), fill=ink)
    else:
        draw.rectangle(box if class_ == 1 else (12 + x, 26 + y, 52 + x, 38 + y), fill=ink)
    return _corrupt(image.resize((32, 32)), domain, random)


def _corrupt(image: Image.Image, domain: str, random: np.random.Generator) -> NDArray[np.uint8]:
    if "blur" in domain:
        image = image.filter(ImageFilter.GaussianBlur(1.8))
    if domain == "pixelate":
        image = image.resize((10, 10)).resize((32, 32), Image.Resampling.NEAREST)
    pixels = np.asarray(image).astype(np.float64)
    if "noise" in domain or domain == "snow":
        pixels += random.normal(0, 45, pixels.shape)
    if domain in ("fog", "frost", "contrast"):
        pixels = 0.35 * pixels + (150 if domain != "contrast" else 80)
    if domain == "brightness":
        pixels += 60
    return np.clip(pixels, 0, 255).astype(np.uint8)
