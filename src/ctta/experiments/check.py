"""Check everything about an experiment that can be checked before hours are spent on it.

Settings, data, model and methods are checked separately, so that a mistake in one does not hide another; then together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ctta.base.errors import CttaError
from ctta.base.text import failure, quoted
from ctta.core.device import where
from ctta.core.execution import Execution
from ctta.core.settings import PAPER
from ctta.core.teacher import MeanTeacher
from ctta.data.dataset import Data
from ctta.data.datasets import find as find_data
from ctta.data.datasets import open_stream
from ctta.data.protocols import PLAIN, Protocol
from ctta.data.stream import Batch, Stream
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.experiments.build import make_adapter, source_batches
from ctta.experiments.experiment import Draft, Experiment
from ctta.experiments.source_check import beyond, expected, known_weights, measure, scorable
from ctta.experiments.source_model import Model
from ctta.methods import find
from ctta.methods.source import Source
from ctta.methods.test_aug import TestAug
from ctta.models import MODELS
from ctta.models.preprocessing import is_normalized

TRIED = 4  # samples on which every method is tried
FACTOR = 2  # from this ratio of image sizes on, the data do not fit the model


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    about: str  # settings, grid, data, model, source, measure, methods, execution, error
    kind: Literal["fact", "remark", "problem"]
    text: str


def check(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Check an experiment or a sweep, given as plain data; each finding is yielded as soon as it is known."""
    if "grid" in values:
        yield from _sweep(values)
    else:
        draft = experiments.draft(values)
        yield from _problems("settings", *draft.problems)
        yield from _contents(draft)


def _sweep(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the settings of all points, and data, model and methods once per kind of point; nothing is repeated."""
    grid = sweep.draft(values)
    axes = grid.head.axes
    size = " x ".join(str(len(values)) for values in axes.values())
    yield Finding("grid", "fact", f"{len(grid.drafts)} points, {size}: {', '.join(axes)}")
    yield from _problems("settings", *grid.problems)
    kinds: dict[str, Draft] = {}
    for draft in grid.drafts.values():
        # Orders and settings of methods do not decide whether an experiment can be run.
        made, valid = draft.experiment, (draft.data_valid, draft.model_valid)
        names = [(method.method, method.name) for method in made.methods]
        kinds.setdefault(repr((made.data, made.model, valid, made.source, made.protocol.kind, names)), draft)
    seen: set[Finding] = set()
    for finding in chain.from_iterable(map(_contents, kinds.values())):
        if finding not in seen:
            seen.add(finding)
            yield finding


def _contents(draft: Draft) -> Iterator[Finding]:
    """Check data, model and methods of an experiment, as far as its settings are valid."""
    made = draft.experiment
    opened = (yield from _data(made.data, made.protocol)) if draft.data_valid else None
    model = (yield from _model(made.model, made.execution)) if draft.model_valid else None
    if opened is not None and model is not None:
        yield from _together(made, *opened, model)


def _data(data: Data, protocol: Protocol) -> Generator[Finding, None, tuple[Stream, Batch] | None]:
    try:
        stream = open_stream(data, protocol)
        batch = next(iter(stream))
    except CttaError as error:
        yield from _problems("data", *str(error).splitlines())
        return None
    domains = f"{len(stream.domains)} domain{'s' if len(stream.domains) > 1 else ''}"
    shape = " x ".join(map(str, batch.x.shape[1:]))
    arranged = "" if protocol == PLAIN else f", protocol {protocol.kind}"
    counted = f"{domains}, {len(stream)} batches of up to {data.batch}, each sample {shape}{arranged}"
    yield Finding("data", "fact", f"{find_data(data).named(data)}: {counted}")
    yield from (Finding("data", "remark", note) for note in stream.notes)
    return stream, batch


def _model(settings: Model, execution: Execution) -> Generator[Finding, None, nn.Module | None]:
    name = settings.factory or settings.name
    try:
        model = settings.load().to(execution.device)
    except Exception as error:  # a factory is the user's own code
        text = str(error) if isinstance(error, CttaError) else f"{quoted(name)} failed ({failure(error)})."
        yield from _problems("model", *text.splitlines())
        return None
    size = sum(parameter.numel() for parameter in model.parameters())
    known = known_weights(settings)
    yield Finding("model", "fact", f"{name}: {size:,} parameters{f', weights of {known.name}' if known else ''}")
    yield Finding("execution", "fact", f"on {execution.device}, precision {execution.precision}")
    if settings.factory and not is_normalized(model):
        yield Finding("model", "remark", "no normalisation is known; model.mean and model.std give it, if it needs one")
    return model


def _together(made: Experiment, stream: Stream, batch: Batch, model: nn.Module) -> Iterator[Finding]:
    """Check the model on the data and every method on the model."""
    x = batch.x[:TRIED].to(where(model))
    pixels, name = x.shape[-1], made.model.name
    entry = MODELS.get(name or "") if made.model.factory is None else None
    if entry is not None and not entry.clouds and entry.input_size != pixels:
        far = max(pixels, entry.input_size) >= FACTOR * min(pixels, entry.input_size)
        text = f"{name} was trained on images of {entry.input_size} pixels; these have {pixels}."
        yield Finding("data", "problem" if far else "remark", text)
    try:
        classes = Source(model)(x).shape[1]
        scorable(stream, classes)
    except CttaError as error:
        yield from _problems("model", str(error))
        return
    yield Finding("model", "fact", f"it maps {tuple(x.shape[1:])} to {classes} classes")
    if problem := beyond(stream, classes):
        yield from _problems("data", f"The {problem}: the model was trained on other classes.")
    elif stream.classes and len(stream.classes) != classes:
        yield Finding("data", "remark", f"The data have {len(stream.classes)} classes, the model has {classes}.")
    if made.source is not None:
        count = sum(map(len, open_stream(made.source).domains))
        yield Finding("source", "fact", f"{count} samples, for methods that need source data")
    try:
        if clean := made.measure.open(made.data, stream):
            n = sum(map(len, clean.batches))
            yield Finding("measure", "fact", f"{n} clean samples are evaluated after each segment")
    except CttaError as error:
        yield from _problems("measure", str(error))
    for method in made.methods:
        cells = [method.cell(batch.x.shape, seed) for seed in made.seeds]
        try:
            adapter = make_adapter(cells[0], model, made.execution)
            if made.source is not None:
                adapter.prepare(source_batches(made.source, adapter))
            adapter.step(x)
        except CttaError as error:
            yield from _problems("methods", f"{method.name}: {error}")
        else:
            names = ", ".join(cell.cell for cell in cells)
            yield Finding("methods", "fact", f"{names}: {cells[0].method}, preset {cells[0].preset}")
    if any(issubclass(find(method.method), MeanTeacher | TestAug) for method in made.methods):
        yield from _views(made.execution, model, x)
    plain = stream if made.protocol == PLAIN else open_stream(made.data)
    yield from _source_error(made, plain, model, pixels, classes)


def _views(execution: Execution, model: nn.Module, x: Tensor) -> Iterator[Finding]:
    """Check that augmented views in chunks and in parallel give the predictions of one view at a time."""
    try:
        ways = (Execution(), execution.replace(precision="full"))
        one, fast = (TestAug(model, preset=PAPER, views=TRIED, execution=way)(x) for way in ways)
    except CttaError:
        return  # reported with the methods
    if not torch.allclose(fast, one, rtol=1e-3, atol=1e-3 * float(one.abs().max())):
        yield from _problems(
            "execution",
            "With this model, augmented views in chunks or in parallel give other predictions than one at a time. Set "
            "execution: {views_per_pass: 1, parallel_passes: 1, channels_last: false}.",
        )


def _source_error(made: Experiment, stream: Stream, model: nn.Module, pixels: int, classes: int) -> Iterator[Finding]:
    try:
        found = measure(made.data, stream, model)
    except CttaError as error:
        yield from _problems("data", str(error))
        return
    if found is None:
        yield Finding("error", "remark", "the samples have no labels, so errors cannot be measured")
        return
    wanted = expected(made.model, made.data, stream, pixels)
    if wanted is None:
        yield Finding("error", "fact", f"{found}; the expected error is not known: model.expected_error can give it")
    elif off := wanted.off(found, made.model.tolerance):
        yield from _problems(
            "error",
            f"{off}. Weights, mean and std, labels or preprocessing do not belong together, and the run would be "
            f"marked as not valid. If this error is right, set model.expected_error: {found.error:.1f}",
        )
        return
    else:
        yield Finding("error", "fact", f"{found}, expected {wanted.error:.1f} % ({wanted.why})")
    guessing = 100 * (1 - 1 / len(stream.scored or range(classes)))
    if found.on == "clean" and found.error >= 0.95 * guessing:
        yield Finding("error", "remark", f"that is no better than guessing, {guessing:.1f} %: are these its weights?")


def _problems(about: str, *texts: str) -> Iterator[Finding]:
    return (Finding(about, "problem", text) for text in texts)
