"""Samples of one's own without labels, through any method: what `ctta adapt` does.

    plan = plan_adaptation("timm:resnet50", "photos/", method="dss")
    for summary in plan.run("predictions.csv", report="runs/photos"):
        ...  # after every batch; the last one is the whole

Samples come in the natural order of their names (image2 before image10), which is the order of the stream. What cannot
be read is left out of its batch and gets a line that says why. The table grows batch by batch: an interrupt loses
nothing.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ctta import report as reports
from ctta.base.errors import ConfigError, InputError, StateError
from ctta.base.fileio import make_folder
from ctta.base.prefetch import ahead
from ctta.core.adapter import Adapter, Step
from ctta.data.datasets.embedded import fashion_mnist
from ctta.data.datasets.embedded_clouds import SOLIDS
from ctta.data.pictures import PICTURES, Fit, files_below, read_picture
from ctta.data.stream import Batch, to_tensor
from ctta.experiments import experiment as experiments
from ctta.methods import METHODS
from ctta.models import EMBEDDED_NETWORKS, find
from ctta.models.load import PROVIDERS
from ctta.models.weights import read_metadata
from ctta.records.run_folder import Cell, Done, Record, Run, RunFolder
from ctta.running.memory import PeakMemory, keep_freed
from ctta.running.runner import Gallery, environment, take

log = logging.getLogger("ctta")

CLOUD = ".npy"
ARRAYS = (".npz", ".npy")
READERS = 2  # batches that are read ahead, each in a thread
DOMAIN = "all"  # nobody says where one ends
SMALLEST = 2  # points of a cloud

Sample = NDArray[Any]  # uint8 (H, W, 3) or float32 (P, 3)


@dataclass(frozen=True)
class Samples:
    """Samples by number; each is read when its turn comes."""

    title: str
    names: tuple[str, ...]
    shape: tuple[int, ...]  # of one sample as the model gets it: (3, H, W) or (P, 3)
    read: Callable[[int], Sample]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Answer:
    """One line of the table. Empty: not known, or not read."""

    file: str
    prediction: int | None = None
    name: str = ""
    confidence: float | None = None
    selected: int | None = None  # 1 or 0; none where the method selects nothing
    source_prediction: int | None = None  # the unadapted model's
    source_name: str = ""
    batch: int | None = None
    error: str = ""  # why it was not read


@dataclass(frozen=True)
class Summary:
    """How far it is, and what there is to say so far."""

    total: int  # samples, also those that cannot be read
    answered: int = 0
    skipped: int = 0
    changed: int = 0  # answers that differ from the source model's
    seconds: float = 0.0  # reading and adapting
    confidence: tuple[float, ...] = ()  # a mean for each batch
    first_error: str = ""
    table: Path | None = None
    page: Path | None = None

    @property
    def done(self) -> int:
        return self.answered + self.skipped

    def along(self, parts: int = 4) -> list[float]:
        """Mean confidence of consecutive parts of the stream."""
        pieces = np.array_split(np.array(self.confidence), min(parts, len(self.confidence)) or 1)
        return [float(piece.mean()) for piece in pieces if len(piece)]

    def describe(self) -> list[str]:
        """A sentence for each thing worth knowing."""
        lines = [
            f"{self.answered} samples in {self.seconds:.1f} s, {self.answered / max(self.seconds, 1e-9):.1f} a second."
        ]
        if self.skipped:
            lines.append(f"{self.skipped} could not be read and were left out; the first: {self.first_error}")
        if self.confidence:
            steps = " → ".join(f"{value:.2f}" for value in self.along())
            lines.append(f"Mean confidence {fmean(self.confidence):.2f}; along the stream {steps}.")
        lines.append(self.comparison())
        return lines

    def comparison(self) -> str:
        share = 100 * self.changed / max(self.answered, 1)
        return f"{share:.1f} % of the answers differ from the unadapted model's."


@dataclass(frozen=True)
class Plan:
    """An adapter, the samples it will meet, and how."""

    adapter: Adapter
    samples: Samples
    cell: Cell
    batch: int
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)  # what was asked for, as plain data
    by_input: bool = True  # whether the input decided on the preset

    def describe(self) -> str:
        why = f" by input {self.samples.shape}" if self.by_input else ""
        batches = len(_cut(len(self.samples), self.batch))
        return (
            f"{self.samples.title}: {len(self.samples)} samples {self.samples.shape} in {batches} batches. "
            f"{self.cell.label}: settings of preset {self.cell.preset!r}{why}."
        )

    def run(
        self, out: Path | str, report: Path | str | None = None, *, force: bool = False, command: str = ""
    ) -> Iterator[Summary]:
        """Write the table, and a page if a folder for it is given; yields after every batch."""
        out, folder = Path(out), None if report is None else RunFolder(report)
        taken = [path for path in (out, folder and folder.path / "run.json") if path and path.exists() and not force]
        if taken:
            raise StateError(
                f"{' and '.join(map(str, taken))} would be overwritten. Say --force, or give another name."
            )
        log.info("%s", self.describe())
        writer = _Report(folder, self, command) if folder else None
        summary, began = Summary(len(self.samples), table=out), time.perf_counter()
        make_folder(out.parent)
        with out.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [column.name for column in fields(Answer)])
            table.writeheader()
            for answers, record in self._turns(writer):
                table.writerows(asdict(answer) for answer in answers)
                file.flush()
                summary = replace(_add(summary, answers, record), seconds=time.perf_counter() - began)
                yield summary
        if not summary.answered:
            raise InputError(
                f"None of the {summary.total} samples could be read. {summary.first_error} {out} names them all."
            )
        if writer:
            yield replace(summary, page=writer.finish(summary))

    def _turns(self, writer: _Report | None) -> Iterator[tuple[list[Answer], Record | None]]:
        device, _ = self.adapter.placement
        for number, names, samples, errors in _read_ahead(self.samples, self.batch):
            answers = [Answer(name, batch=number, error=error) for name, error in zip(names, errors, strict=True)]
            if not samples:
                yield answers, None
                continue
            batch = _batch(number, samples)
            step, record = take(self.adapter, batch)
            source = self.adapter.source(batch.x.to(device)).argmax(1).tolist()
            said = zip(step.logits.argmax(1).tolist(), step.samples["confidence"].tolist(), source, strict=True)
            chosen = step.samples["selected"].long().tolist() if "selected" in step.samples else [None] * len(samples)
            read = [index for index, error in enumerate(errors) if not error]
            for index, (prediction, confidence, before), selected in zip(read, said, chosen, strict=True):
                answers[index] = replace(
                    answers[index],
                    prediction=prediction,
                    name=self._name(prediction),
                    confidence=round(confidence, 6),
                    selected=selected,
                    source_prediction=before,
                    source_name=self._name(before),
                )
            if writer:
                writer.add(record, batch, step)
            yield answers, record

    def _name(self, prediction: int) -> str:
        return self.classes[prediction] if self.classes else ""


class _Report:
    """Fills a run folder, from which the page is made."""

    def __init__(self, folder: RunFolder, plan: Plan, command: str) -> None:
        self.folder, self.adapter, self.cell = folder, plan.adapter, plan.cell.cell
        self.memory = PeakMemory()
        self.batches, self.seconds = 0, 0.0
        about = json.loads(json.dumps(plan.about))
        stream = {
            "dataset": plan.samples.title,
            "domains": [[DOMAIN, 0]],
            "images": len(plan.samples),
            "batch": plan.batch,
            "boundaries": "unknown" if plan.adapter.drift is None else "detected",
            "classes": list(plan.classes),
        }
        identity = hashlib.sha256(json.dumps([about, asdict(plan.cell)], sort_keys=True).encode()).hexdigest()[:16]
        self.run = Run(plan.samples.title, identity, about, stream, (plan.cell,), environment(), command)
        for old in (f"{self.cell}.jsonl", f"{self.cell}.done.json", f"{self.cell}.samples.npz"):
            (folder.path / old).unlink(missing_ok=True)
        folder.write_run(self.run)

    def add(self, record: Record, batch: Batch, step: Step) -> None:
        self.batches, self.seconds, self.last = self.batches + 1, self.seconds + record.seconds, (batch, step)
        with self.folder.records_path(self.cell).open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")

    def finish(self, summary: Summary) -> Path:
        """The mark that all is there, and the page."""
        batch, step = self.last
        if batch.x.dim() == 4:  # there are pictures of images alone
            gallery = Gallery()
            gallery.keep(self.adapter, batch, step)
            self.folder.write_samples(self.cell, gallery.samples())
        done = Done(self.batches, summary.answered, -1, self.seconds, self.memory.megabytes())
        self.folder.write_done(self.cell, done)
        skipped = (f"{summary.skipped} of {summary.total} samples could not be read.",) if summary.skipped else ()
        stream = {**self.run.stream, "images": summary.answered}
        self.folder.write_run(replace(self.run, stream=stream, notes=(summary.comparison(), *skipped)))
        return reports.write(self.folder)


def plan_adaptation(
    model: str,
    path: Path | str,
    *,
    method: str = "dss",
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    weights: str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    batch: int = 64,
    seed: int = 0,
    classes: Path | str | None = None,
    detect: bool = False,
) -> Plan:
    """Look at everything before the first batch; all mistakes of the settings are reported together.

    `model` is 'embedded', a name from ctta.models.MODELS, 'timm:...' and its like, or a factory. `changes` are fields
    of the method's settings. Without `size`, images get the model's own, or keep theirs if all are equal.
    `detect` says whether the method looks for changes of domain itself.
    """
    keep_freed()
    provider, colon, _ = model.partition(":")
    own = bool(colon) and provider not in PROVIDERS
    if colon and not own:
        weights = weights or "pretrained"
    about = {
        "model": {"name": None if own else model, "factory": model if own else None, "weights": weights}
        | {"mean": mean and list(mean), "std": std and list(std)},
        "methods": [{**(changes or {}), "method": method, "preset": preset}],
        "seeds": [seed],
    }
    made = _checked(about, method, batch, size)  # an experiment whose data are yet to come
    if size is None and not own:
        size = find(EMBEDDED_NETWORKS.get(model, model)).input_size
    samples = open_samples(Path(path), size)
    (cell,) = made.cells((batch, *samples.shape))
    kind = METHODS[method]
    adapter = kind(
        made.model.load(), kind.config_type.make(cell.config), seed=seed, boundaries="detected" if detect else "known"
    )
    names = _class_names(model, weights, classes)
    if names and len(names) != adapter.classes:
        raise InputError(f"There are {len(names)} names of classes; the model has {adapter.classes} classes.")
    asked = {**about, "data": {"path": str(path), "size": size, "batch": batch, "detect": detect}}
    return Plan(adapter, samples, cell, batch, names, asked, by_input=preset in (None, "paper"))


def _checked(about: Mapping[str, Any], method: str, batch: int, size: int | None) -> experiments.Experiment:
    problems = [
        f"{name} must be at least 1. Got {value}."
        for name, value in (("batch", batch), ("size", size or 1))
        if value < 1
    ]
    if method in METHODS and METHODS[method].traits.source != "none":
        free = [name for name, kind in METHODS.items() if kind.traits.source == "none"]
        problems.append(f"{method!r} needs labelled source data, and here are none. Choose from: {', '.join(free)}.")
    try:
        made = experiments.make(about)
    except ConfigError as error:
        problems += str(error).splitlines()
    if problems:
        raise ConfigError("\n".join(problems))
    return made


def _class_names(model: str, weights: str | None, path: Path | str | None) -> tuple[str, ...]:
    """From a text file, a line each; else those that came with the weights."""
    if path is not None:
        try:
            return tuple(line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip())
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read ({error}). Give a text file, the name of a class a line."
            ) from error
    if model in EMBEDDED_NETWORKS:
        return fashion_mnist()[2] if model == "embedded" else tuple(SOLIDS)
    about = read_metadata(weights) if weights else {}
    return tuple(json.loads(about["classes"])) if "ctta" in about else ()


# Reading


def open_samples(path: Path, size: int | None = None) -> Samples:
    """A folder of images or of clouds, a file each, or one array of them.

    Images are brought to `size`: the shorter side resized, the middle square cut out.
    """
    if path.is_file() and path.suffix in ARRAYS:
        return _from_array(path, size)
    if not path.is_dir():
        raise InputError(f"{path} is no folder of samples and no array ({' '.join(ARRAYS)}). Give one of these.")
    found = sorted(files_below(path, (*PICTURES, CLOUD)), key=natural)
    pictures, clouds = ([name for name in found if _suffix(name) in kinds] for kinds in (PICTURES, (CLOUD,)))
    if pictures and clouds:
        raise InputError(f"{path} holds {len(pictures)} images and {len(clouds)} clouds (.npy). Part them.")
    if not pictures and not clouds:
        raise InputError(f"{path} holds no images ({' '.join(PICTURES)}) and no clouds ({CLOUD}).")
    title = path.resolve().name
    if clouds:
        shape = _common_shape(path, clouds, _cloud_shape, "Clouds need one number of points: resample them.")
        return Samples(title, tuple(clouds), shape, lambda row: read_cloud(path / clouds[row]))
    square = (size, size) if size else None
    height, width = square or _common_shape(path, pictures, _image_shape, "Say what size the model takes: --size 224.")
    return Samples(title, tuple(pictures), (3, height, width), lambda row: read_image(path / pictures[row], size))


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts numbers by their value.

    >>> sorted(["a10.png", "a2.png", "B1.png"], key=natural)
    ['a2.png', 'a10.png', 'B1.png']
    """
    parts = re.split(r"(\d+)", name.casefold())
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def read_image(path: Path, size: int | None = None) -> Sample:
    """uint8 (H, W, 3), upright; with a size, the shorter side is resized to it and the middle square cut out."""
    return Fit(size, size)(read_picture(path, upright=True))


def read_cloud(path: Path) -> Sample:
    """float32 (P, 3)."""
    return _cloud(np.load(path, allow_pickle=False))


def _cloud(points: NDArray[Any]) -> Sample:
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < SMALLEST or points.dtype.kind != "f":
        raise InputError(f"A cloud must be floating point (P, 3). Got {points.dtype} {points.shape}.")
    if not np.isfinite(points).all():
        raise InputError("The cloud holds NaN or infinity.")
    return points.astype(np.float32)


def _from_array(path: Path, size: int | None) -> Samples:
    try:
        stored = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        found = {"array": stored} if isinstance(stored, np.ndarray) else {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as an array ({error}).") from error
    for array in found.values():
        names = tuple(f"{path.name}[{row}]" for row in range(len(array))) if array.ndim else ()
        if names and array.ndim == 3 and array.shape[2] == 3 and array.dtype.kind == "f":
            return Samples(path.stem, names, array.shape[1:], partial(_cloud_at, array))
        if names and array.ndim == 4 and array.shape[3] == 3 and array.dtype == np.uint8:
            if size and array.shape[1:3] != (size, size):
                raise InputError(f"{path} holds images of {array.shape[1:3]} pixels; the model takes {size}.")
            shape = (3, *array.shape[1:3])
            return Samples(path.stem, names, shape, partial(_image_at, array))
    shapes = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in found.items())
    raise InputError(
        f"{path} must hold clouds, floating point (N, P, 3), or images, uint8 (N, H, W, 3). Found: {shapes}."
    )


def _cloud_at(array: NDArray[Any], row: int) -> Sample:
    return _cloud(array[row])


def _image_at(array: NDArray[Any], row: int) -> Sample:
    return np.asarray(array[row])


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _common_shape(
    root: Path, names: Sequence[str], read: Callable[[Path], tuple[int, int]], remedy: str
) -> tuple[int, int]:
    """The shape that all share, read off the files' heads; those without one are met again when their turn comes."""
    first: dict[tuple[int, int], str] = {}
    problem = ""
    for name in names:
        try:
            first.setdefault(read(root / name), name)
        except Exception as error:  # as many kinds as there are formats
            problem = problem or f"{name}: {error}"
    if not first:
        raise InputError(f"None of the {len(names)} files in {root} can be read. The first is {problem}")
    if len(first) > 1:
        (one, here), (other, there), *_ = first.items()
        raise InputError(f"The samples differ in size: {here} has {one}, {there} has {other}. {remedy}")
    return next(iter(first))


def _image_shape(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        turned = picture.getexif().get(0x0112, 1) >= 5  # the orientation tag: lies on its side
        return (picture.width, picture.height) if turned else (picture.height, picture.width)


def _cloud_shape(path: Path) -> tuple[int, int]:
    points, coordinates = np.load(path, mmap_mode="r", allow_pickle=False).shape
    return points, coordinates


def _cut(count: int, batch: int) -> list[NDArray[Any]]:
    """Rows of batches of nearly equal size, none larger than asked: a last batch of one image has no statistics."""
    return np.array_split(np.arange(count), -(-count // batch))


def _read_ahead(samples: Samples, batch: int) -> Iterator[tuple[int, list[str], list[Sample], list[str]]]:
    """Batch by batch: number, names, what could be read, and an error a name (empty where all is well)."""
    parts = ahead(partial(_read, samples), _cut(len(samples), batch), READERS)
    for number, (rows, (read, errors)) in enumerate(parts):
        yield number, [samples.names[row] for row in rows], read, errors


def _read(samples: Samples, rows: NDArray[Any]) -> tuple[list[Sample], list[str]]:
    read, errors = [], []
    for row in rows:
        try:
            read.append(_fitting(samples.read(int(row)), samples.shape))
            errors.append("")
        except Exception as error:  # as many kinds as there are formats
            errors.append(str(error) or type(error).__name__)
    return read, errors


def _fitting(sample: Sample, shape: tuple[int, ...]) -> Sample:
    found = (3, *sample.shape[:2]) if sample.ndim == 3 else sample.shape
    if found != shape:
        raise InputError(f"Its shape is {found}, that of the others {shape}.")
    return sample


def _batch(number: int, samples: Sequence[Sample]) -> Batch:
    unknown = torch.full((len(samples),), -1)
    return Batch(to_tensor(np.stack(samples)), unknown, DOMAIN, 0, 0, number, first=number == 0, last=False)


def _add(summary: Summary, answers: Sequence[Answer], record: Record | None) -> Summary:
    said = [answer for answer in answers if not answer.error]
    failed = [f"{answer.file}: {answer.error}" for answer in answers if answer.error]
    return replace(
        summary,
        answered=summary.answered + len(said),
        skipped=summary.skipped + len(failed),
        changed=summary.changed + sum(answer.prediction != answer.source_prediction for answer in said),
        confidence=(*summary.confidence, *([record.info["confidence"]] if record else [])),
        first_error=summary.first_error or next(iter(failed), ""),
    )
