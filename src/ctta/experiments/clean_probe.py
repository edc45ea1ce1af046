"""Measure forgetting: the error on clean samples after each segment of the stream, on request.

The samples are those of the stream before their corruption, spread evenly over them. They are evaluated by `predict`,
which changes no state and draws no randomness of the stream: the records are those of a run without this measurement,
plus the counts. Its time is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ctta.base.config import Config, setting
from ctta.base.errors import InputError
from ctta.core.device import upload
from ctta.core.guard import Adapting
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import find
from ctta.data.stream import Domain, Labels, Rows, Stream, answer, to_tensor


@dataclass(frozen=True)
class Measure(Config):
    """What is measured in addition to the error on the stream."""

    clean_samples: int | None = setting(
        None, "Number of clean samples that are evaluated after each segment; none by default.", low=1, was="clean"
    )

    def problems(self, data: Data) -> list[str]:
        """List what is wrong with it for these data."""
        dataset = find(data)
        if self.clean_samples is None or dataset.holds == "clean":
            return []
        return [
            f"clean_samples needs clean samples, and {dataset.title} has none. Leave it out, or use data that are "
            "corrupted on the fly, such as 'arrays'."
        ]

    def open(self, data: Data, stream: Stream) -> CleanSamples | None:
        """Open the clean samples of a stream's data; None if they are not wanted."""
        if self.clean_samples is None:
            return None
        try:
            (domain,) = find(data).open(data, ((CLEAN, 0),)).domains
        except InputError as error:
            raise InputError(f"measure.clean_samples: the clean samples cannot be read. {error}") from error
        if (domain.labels < 0).any():
            raise InputError("measure.clean_samples: the clean samples have no labels. Leave it out.")
        rows = evenly_spaced(len(domain), self.clean_samples)
        count = -(-len(rows) // stream.batch)
        return CleanSamples(domain, tuple(rows[start::count] for start in range(count)), stream.scored)


@dataclass(frozen=True)
class CleanSamples:
    """Clean samples in batches, each spread over the whole domain: stored data may be sorted by class."""

    domain: Domain
    batches: tuple[Rows, ...]
    scored: tuple[int, ...] = ()

    def ask(self, adapter: Adapting) -> tuple[int, int, int]:
        """Count the samples, those that the adapter gets wrong, and those that the unadapted model gets wrong."""
        n, wrong, source_wrong = 0, 0, 0
        for rows in self.batches:
            samples, labels = self.domain.load(rows)
            x = upload(to_tensor(samples), adapter.placement[0])
            n += len(rows)
            wrong += count_wrong(adapter.predict(x), labels, self.scored)
            source_wrong += count_wrong(adapter.source(x), labels, self.scored)
        return n, wrong, source_wrong


def evenly_spaced(count: int, most: int) -> Rows:
    """Return at most so many of `count` rows, evenly spaced from the first to the last."""
    return np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)


def count_wrong(logits: Tensor, labels: Labels, scored: tuple[int, ...]) -> int:
    """Count the wrong predictions among the scored classes; all classes if none is named."""
    return int((answer(logits, scored).cpu().numpy() != labels).sum())
