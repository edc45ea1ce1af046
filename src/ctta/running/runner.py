"""The loop: a stream goes through an adapter, and every batch leaves a record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ctta.core.adapter import Step
from ctta.core.device import kind_of, synchronize
from ctta.core.guard import Adapting
from ctta.data.stream import Batch, Stream
from ctta.experiments.clean_probe import CleanSamples
from ctta.records.run_folder import BINS, Record


@dataclass(frozen=True)
class Evaluated:
    """One batch, its record and its predictions on the host, and its samples where the adapter is."""

    batch: Batch
    x: Tensor
    record: Record
    prediction: Tensor  # (N,), int64
    confidence: Tensor  # (N,), float64
    selected: Tensor | None  # (N,), bool; None if the method selects nothing
    source: Tensor | None = None  # (N,), int64: the unadapted model's predictions, if they were asked for
    source_logits: Tensor | None = None  # (N, C), where the adapter is: the same, if its step has made them


def evaluate(
    adapter: Adapting, stream: Stream, *, start: int = 0, tell: bool = True, clean: CleanSamples | None = None
) -> Iterator[Evaluated]:
    """Adapt along a stream; `tell`: the adapter learns where a domain starts; `clean`: evaluated after each segment."""
    for batch, x in stream.on(adapter.placement[0], start):
        if batch.first and tell:
            adapter.begin_domain()
        evaluated = _evaluate(adapter, batch, x)
        if clean is not None and batch.last:
            evaluated = replace(evaluated, record=replace(evaluated.record, clean=clean.ask(adapter)))
        yield evaluated


def _evaluate(adapter: Adapting, batch: Batch, x: Tensor) -> Evaluated:
    synchronize(x.device)  # the copy, and what was asked of the device before it
    began = time.perf_counter()
    step = adapter.step(x)
    prediction, confidence, selected, info = _read(step, batch.answer(step.logits))
    synchronize(x.device)
    seconds = time.perf_counter() - began
    known = batch.y >= 0
    right, labelled = prediction == batch.y, int(known.sum())
    wrong = known & ~right
    record = Record(
        method=adapter.name,
        seed=adapter.seed,
        step=batch.step,
        domain=batch.domain,
        severity=batch.severity,
        n=len(prediction),
        wrong=int(wrong.sum()) if labelled else -1,
        seconds=round(seconds, 6),
        info=dict(zip(step.info, info, strict=True)),
        position=batch.position,
        selected=None if selected is None else int(selected.sum()),
        selected_wrong=None if selected is None else int((selected & wrong).sum()) if labelled else -1,
        bins=_bins(confidence[known], right[known]) if labelled else _bins(confidence, right),
        labelled=labelled if 0 < labelled < len(known) else None,
    )
    return Evaluated(batch, x, record, prediction, confidence, selected, source_logits=step.source)


def _read(step: Step, prediction: Tensor) -> tuple[Tensor, Tensor, Tensor | None, list[float]]:
    """Bring all that a record needs to the host in one read: a device that is asked often waits each time."""
    names = [name for name in ("confidence", "selected") if name in step.samples]
    parts = [prediction, *(step.samples[name] for name in names), *(value.reshape(1) for value in step.info.values())]
    dtype = torch.float64 if kind_of(prediction.device).wide else torch.float32
    packed = torch.cat([part.to(prediction.device, dtype, non_blocking=True) for part in parts]).tolist()
    size = (1 + len(names)) * len(prediction)
    rows = torch.tensor(packed[:size], dtype=torch.float64).reshape(1 + len(names), -1)
    return rows[0].long(), rows[1], rows[2].bool() if "selected" in names else None, packed[size:]


def _bins(confidence: Tensor, right: Tensor) -> tuple[tuple[int, float, int], ...]:
    """Samples, sum of confidence and correct predictions in each of the equal-width bins."""
    which = (confidence * BINS).long().clamp(0, BINS - 1)
    counts, sums, correct = (
        torch.bincount(which, weights, minlength=BINS).tolist() for weights in (None, confidence, right.double())
    )
    return tuple((int(n), total, int(good)) for n, total, good in zip(counts, sums, correct, strict=True))
