"""Everything about an experiment that can be looked at before hours are spent.

Settings, data, model and methods are looked at apart, so that a mistake in one does not hide another; then together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from ctta.base.errors import CttaError
from ctta.data.dataset import Data
from ctta.data.datasets import DATASETS, open_stream
from ctta.data.protocols import PLAIN, Protocol
from ctta.data.stream import Batch, Stream
from ctta.experiments import experiment as experiments
from ctta.experiments import sweep
from ctta.experiments.build import make_adapter, source_batches
from ctta.experiments.experiment import Draft, Model
from ctta.experiments.source_check import beyond, expected, known_weights, measure, scorable
from ctta.methods.source import Source
from ctta.models import MODELS

TRIED = 4  # samples that every method is tried on
FACTOR = 2  # how much larger or smaller than the model's own an image may be


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    about: str  # settings, data, model, methods, error
    kind: Literal["fact", "remark", "problem"]
    text: str


def check(values: Mapping[str, Any]) -> Iterator[Finding]:
    """What there is to say about an experiment or a sweep, given as plain data; each thing as soon as it is known."""
    if "grid" in values:
        yield from _sweep(values)
        return
    draft = experiments.draft(values)
    yield from (Finding("settings", "problem", problem) for problem in draft.problems)
    yield from _running(draft)


def _sweep(values: Mapping[str, Any]) -> Iterator[Finding]:
    """The settings of all points; data, model and methods once for each kind of point. Nothing is said twice."""
    grid = sweep.read(values)
    size = " x ".join(str(len(values)) for values in grid.axes.values())
    yield Finding("grid", "fact", f"{len(grid.points)} points, {size}: {', '.join(grid.axes)}")
    yield from (Finding("settings", "problem", problem) for problem in grid.problems)
    drafts = [experiments.draft(point.settings) for point in grid.points]
    kinds = {repr(_kind(draft)): draft for draft in reversed(drafts)}  # the first of each kind stays
    seen = set()
    for draft in reversed(kinds.values()):
        for finding in _running(draft):
            if finding not in seen:
                seen.add(finding)
                yield finding


def _kind(draft: Draft) -> tuple[Any, ...]:
    """What decides whether an experiment can be run; orders and settings of methods do not."""
    names = [(method.method, method.label) for method in draft.methods]
    return draft.data, draft.model, draft.source, draft.protocol.kind, names


def _running(draft: Draft) -> Iterator[Finding]:
    """Data, model and methods of an experiment, as far as its settings can be used."""
    opened: list[tuple[Stream, Batch]] = []
    loaded: list[nn.Module] = []
    if draft.data is not None:
        yield from _data(draft.data, draft.protocol, opened)
    if draft.model is not None:
        yield from _model(draft.model, loaded)
    if opened and loaded:
        yield from _together(draft, *opened[0], loaded[0])


def _data(data: Data, protocol: Protocol, opened: list[tuple[Stream, Batch]]) -> Iterator[Finding]:
    try:
        stream = open_stream(data, protocol)
        batch = next(iter(stream))
    except CttaError as error:
        yield from (Finding("data", "problem", line) for line in str(error).splitlines())
        return
    opened.append((stream, batch))
    counted = f"{len(stream.domains)} domain{'s' if len(stream.domains) > 1 else ''}"
    domains = f"{counted}, {len(stream)} batches of up to {data.batch}"
    shape = " x ".join(map(str, batch.x.shape[1:]))
    title = DATASETS[data.dataset].named(data)
    arranged = "" if protocol == PLAIN else f", protocol {protocol.kind}"
    yield Finding("data", "fact", f"{title}: {domains}, each sample {shape}{arranged}")
    yield from (Finding("data", "remark", note) for note in stream.notes)


def _model(model: Model, loaded: list[nn.Module]) -> Iterator[Finding]:
    name = model.factory or model.name
    try:
        network = model.load()
    except CttaError as error:
        yield from (Finding("model", "problem", line) for line in str(error).splitlines())
        return
    except Exception as error:  # a factory is anybody's code
        yield Finding("model", "problem", f"{name} failed: {error!r}.")
        return
    loaded.append(network)
    size = sum(parameter.numel() for parameter in network.parameters())
    known = known_weights(model)
    weights = f", weights of {known.name}" if known is not None else ""
    yield Finding("model", "fact", f"{name}: {size:,} parameters{weights}")


def _together(draft: Draft, stream: Stream, batch: Batch, model: nn.Module) -> Iterator[Finding]:
    """The model on the data, every method on the model."""
    assert draft.data is not None
    assert draft.model is not None
    x = batch.x[:TRIED]
    yield from _sizes(draft.model, x.shape[-1])
    try:
        classes = Source(model)(x).shape[1]
        scorable(stream, classes)
    except CttaError as error:
        yield Finding("model", "problem", str(error))
        return
    yield Finding("model", "fact", f"it maps {tuple(x.shape[1:])} to {classes} classes")
    if problem := beyond(stream, classes):
        yield Finding("data", "problem", f"The {problem}: the model was trained on other classes.")
    elif stream.classes and len(stream.classes) != classes:
        yield Finding("data", "remark", f"The data have {len(stream.classes)} classes, the model has {classes}.")
    if draft.source is not None:
        (domain,) = open_stream(draft.source).domains
        yield Finding("source", "fact", f"{len(domain)} samples, for methods that need source data")
    try:
        if clean := draft.measure.open(draft.data, stream):
            asked = sum(map(len, clean.batches))
            yield Finding("measure", "fact", f"{asked} clean samples are asked after each stretch")
    except CttaError as error:
        yield Finding("measure", "problem", str(error))
    for method in draft.methods:
        cells = [method.cell(batch.x.shape, seed) for seed in draft.seeds]
        try:
            adapter = make_adapter(cells[0], model, draft.execution)
            if draft.source is not None:
                adapter.prepare(source_batches(draft.source, adapter))
            adapter.step(x)
        except CttaError as error:
            yield Finding("methods", "problem", f"{method.label}: {error}")
        else:
            names = ", ".join(cell.cell for cell in cells)
            yield Finding("methods", "fact", f"{names}: {cells[0].method}, preset {cells[0].preset}")
    plain = stream if draft.protocol == PLAIN else open_stream(draft.data)
    yield from _source_error(draft.model, draft.data, plain, model, x.shape[-1], classes)


def _sizes(model: Model, pixels: int) -> Iterator[Finding]:
    entry = MODELS.get(model.name or "") if model.factory is None else None
    if entry is None or entry.input_size == pixels:
        return
    far = max(pixels, entry.input_size) >= FACTOR * min(pixels, entry.input_size)
    text = f"{model.name} was trained on images of {entry.input_size} pixels; these have {pixels}."
    yield Finding("data", "problem" if far else "remark", text)


def _source_error(
    settings: Model, data: Data, stream: Stream, model: nn.Module, pixels: int, classes: int
) -> Iterator[Finding]:
    try:
        found = measure(data, stream, model)
    except CttaError as error:
        yield Finding("data", "problem", str(error))
        return
    if found is None:
        yield Finding("error", "remark", "the samples have no labels, so errors are not known")
        return
    wanted = expected(settings, data, stream, pixels)
    if wanted is None:
        yield Finding("error", "fact", f"{found}; what it should be is not known: model.expected_error can say it")
    elif off := wanted.off(found, settings.tolerance):
        yield Finding(
            "error",
            "problem",
            f"{off}. Weights, mean and std, labels or preprocessing do not belong together, and the run would be "
            f"marked as not valid. If it is as it should be, say so: model.expected_error: {found.error:.1f}",
        )
        return
    else:
        yield Finding("error", "fact", f"{found}, expected {wanted.error:.1f} % ({wanted.why})")
    guessing = 100 * (1 - 1 / len(stream.scored or range(classes)))
    if found.on == "clean" and found.error >= 0.95 * guessing:
        yield Finding("error", "remark", f"that is no better than guessing, {guessing:.1f} %: are these its weights?")
