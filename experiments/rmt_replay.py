"""RMT with what its released code does besides on source data: a warm-up before the stream, and a replay along it.

    warm_up    before the stream, one step per source batch: the symmetric cross-entropy of student and teacher, at a
               rate that rises from 0 to the stream's
    replay     along the stream, the cross-entropy of the student on a labelled source batch is added to RMT's loss

The replayed samples are in memory and not in the adapter's state, so a run that was interrupted begins again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import torch.nn.functional as F
from torch import Tensor

from ctta.core.losses import consistency
from ctta.methods.rmt import RMT

WARM_UP = 250  # batches of 200: the 50,000 samples of the benchmark


class RMTWarmUp(RMT):
    """RMT with a warm-up, and without replay."""

    name = "rmt_warm_up"
    title = "RMT, warm-up"

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        super().study(self.warm_up(source))

    def warm_up(self, source: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        for number, (x, y) in enumerate(source, start=1):
            if number <= WARM_UP:
                student, teacher = self.run(self.student, x, grad=True), self.run(self.teacher, x)
                RMT.learn(self, consistency(teacher, student, symmetric=True).mean(), share=number / WARM_UP)
                self.follow_student()
            yield x, y


class RMTReplay(RMTWarmUp):
    """RMT that keeps its source data."""

    name = "rmt_replay"
    title = "RMT, warm-up and replay"

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        self.source_batches: list[tuple[Tensor, Tensor]] = []
        super().study(self.keep(source))
        self.replayed = itertools.cycle(self.source_batches)

    def keep(self, source: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in source:
            self.source_batches.append(batch)
            yield batch

    def learn(self, loss: Tensor, *, skip: Tensor | None = None, share: Tensor | float = 1.0) -> Tensor:
        x, y = next(self.replayed)
        replay = F.cross_entropy(self.run(self.student, x, grad=True), y)
        return super().learn(loss + replay, skip=skip, share=share)
