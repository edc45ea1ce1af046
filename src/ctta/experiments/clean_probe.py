"""What a method still knows of the world it comes from: its answers on clean samples after each stretch, on request.

The samples are those of the stream before their corruption, spread evenly over them. The adapter is asked by `predict`,
which learns nothing, changes nothing and draws no randomness that the stream needs: a run with this measurement has the
records of one without it, and the counts beside them. Its time is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ctta.base.config import Config, setting
from ctta.base.errors import InputError
from ctta.core.adapter import Adapter
from ctta.data.dataset import CLEAN, Data
from ctta.data.datasets import DATASETS
from ctta.data.stream import Domain, Labels, Rows, Stream, answer, to_tensor


@dataclass(frozen=True)
class Measure(Config):
    """What is measured beside the stream."""

    clean: int | None = setting(
        None, "Clean samples that are asked after each stretch, at most all of a domain; none without it.", low=1
    )

    def problems(self, data: Data) -> list[str]:
        """What is wrong with it for these data."""
        dataset = DATASETS.get(data.dataset)
        if self.clean is None or dataset is None or dataset.holds == "clean":
            return []
        return [
            f"clean samples are to be asked, and {dataset.title} has none. Leave 'clean' out, or use data that are "
            "corrupted on the fly, such as 'arrays'."
        ]

    def open(self, data: Data, stream: Stream) -> CleanSamples | None:
        """The clean samples of a stream's data; none where they are not asked for."""
        if self.clean is None:
            return None
        try:
            (domain,) = DATASETS[data.dataset].open(data, ((CLEAN, 0),)).domains
        except InputError as error:
            raise InputError(f"measure.clean: the clean samples cannot be read. {error}") from error
        if (domain.labels < 0).any():
            raise InputError("measure.clean: the clean samples have no labels. Leave it out.")
        n = min(self.clean, len(domain))
        rows = np.linspace(0, len(domain) - 1, n).round().astype(np.int64)
        count = -(-n // stream.batch)
        return CleanSamples(domain, tuple(rows[start::count] for start in range(count)), stream.scored)


@dataclass(frozen=True)
class CleanSamples:
    """Clean samples in batches, each spread over the whole domain: stored data may be sorted by class."""

    domain: Domain
    batches: tuple[Rows, ...]
    scored: tuple[int, ...] = ()

    def ask(self, adapter: Adapter) -> tuple[int, int, int]:
        """How many there are, how many the adapter has wrong, and how many the unadapted model has."""
        device, _ = adapter.placement
        n, wrong, source_wrong = 0, 0, 0
        for rows in self.batches:
            samples, labels = self.domain.load(rows)
            x = to_tensor(samples).to(device)
            n += len(rows)
            wrong += self._wrong(adapter.predict(x), labels)
            source_wrong += self._wrong(adapter.source(x), labels)
        return n, wrong, source_wrong

    def _wrong(self, logits: Tensor, labels: Labels) -> int:
        return int((answer(logits, self.scored).cpu().numpy() != labels).sum())
