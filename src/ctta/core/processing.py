"""How an adapter processes a batch: exclusively, checked, and all or nothing."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ctta.base.errors import StateError
from ctta.base.randomness import Randomness
from ctta.core import networks, optim
from ctta.core import statistics as norms
from ctta.core.drift import Inspection
from ctta.core.inputs import are_probabilities, check_form, check_logits, check_values, value_range
from ctta.core.shares import NOTHING, believe, beside, predictions, probes
from ctta.core.tools import CurrentBatch, MethodTools
from ctta.core.undo import Before, all_finite

log = logging.getLogger("ctta")

FEW = 16  # samples, below which batch statistics say little about a domain


@dataclass(frozen=True)
class Step:
    """What one batch gave: the prediction, and what there is to know about it.

    `info` and `samples` stay on the device; they are read only if somebody asks for them.
    """

    logits: Tensor  # (N, C), detached
    info: Mapping[str, Tensor] = field(default_factory=dict)  # 0-d: loss, confidence, threshold, selected, views ...
    samples: Mapping[str, Tensor] = field(default_factory=dict)  # (N,): confidence, selected ...
    reference: Tensor | None = None  # (N, C): the prediction of the source's weights, if it was asked for
    source: Tensor | None = None  # (N, C): that of the unadapted model, if it was asked for


class Processing(MethodTools):
    """The part of an adapter that keeps its promises about every batch."""

    inputs: Literal["auto", "any"]
    whole_batches: ClassVar[bool]
    skipped: Tensor
    stream_recent: Tensor  # what the source model predicts for the recent images, for auto statistics
    _warned: set[str]  # what has been told

    @abstractmethod
    def observe(self, x: Tensor) -> Mapping[str, Tensor]: ...

    @abstractmethod
    def adapt(self, x: Tensor) -> Step: ...

    @property
    @abstractmethod
    def network(self) -> nn.Module: ...

    @contextmanager
    def _scope(self, x: Tensor) -> Iterator[Tensor]:
        """Process one batch: exclusive, of the right form, with autograd on and randomness of its own."""
        with self._turns.take(), torch.inference_mode(False), torch.enable_grad():
            if self._current is not None:
                raise StateError(
                    "This adapter is in the middle of a batch, and its model has called it. One batch comes after the "
                    "other: call the network inside the model instead."
                )
            check_form(x, *self.placement)
            self._view_maker(x)  # refuses what it has no augmented views for
            x = x.clone() if x.is_inference() else x.detach()
            random = Randomness(self.seed, self.batches, x.device)
            try:
                self._current = CurrentBatch(random, torch.ones_like(self.skipped, dtype=torch.bool))
                with random.scoped():
                    yield x
            finally:
                self._current = None
                norms.discard_statistics(self)

    @contextmanager
    def passing(self, x: Tensor) -> Iterator[Tensor]:
        """Let networks see a batch, checked, as they do in `predict`; nothing changes."""
        with self._scope(x) as x, torch.no_grad():
            self._read(x)
            self._compare(x)
            yield x

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If the block fails or is interrupted, all state is as it was before."""
        settings, batches, prepared = (self.preset, self.config), self.batches, self.prepared
        places = [(module._buffers, *place) for module in self.modules() for place in module._buffers.items()]
        modes = norms.modes(self)
        self._keep()
        before = self._before
        try:
            yield
        except BaseException:
            for buffers, name, buffer in places:  # a model may have put another one there
                buffers[name] = buffer
            self._before = before
            self._before.restore()
            self.batches, self.prepared = batches, prepared
            self.change_settings(*settings)
            norms.restore_modes(modes)  # an interrupt may have come between two layers
            raise

    def _share_with_source(self) -> None:
        """Remember nothing but that networks have the source's weights."""
        self._before = Before()
        for network in self._networks:
            self._before.share(network.parameters(), self.source_model.parameters())

    def _keep(self) -> None:
        """Remember the state as it is now."""
        moments = [] if self.optimizer is None else optim.moments(self.optimizer)
        frozen = {id(parameter) for parameter in self.source_model.parameters()}
        changing = (tensor for tensor in (*self.parameters(), *self.buffers()) if id(tensor) not in frozen)
        buffers = (buffer for network in (self.source_model, *self._networks) for buffer in network.buffers())
        self._before.keep((*changing, *moments), uncounted=buffers)

    def _sound_step(self, x: Tensor) -> Step:
        """Adapt; nothing is kept of it if what was learned is not finite.

        If the weights that were learned before give no finite answer, the batch is taken again from the source's.
        """
        step, answers, state = self._attempt(x)
        if not answers and self._source_logits(x).isfinite().all():
            log.warning(
                "%s: the adapted weights give answers that are not finite at batch %d; the source's give finite ones. "
                "Weights, statistics and optimiser went back to the source's. If this happens again, lower lr.",
                self.name,
                self.batches,
            )
            self._before.restore()
            self.restore_source()
            self._share_with_source()
            self._keep()  # the batch begins with the source's weights now
            self._batch.restored, self._batch.finite = True, torch.ones_like(self._batch.finite)
            self._read(x, self.observe(x))
            step, answers, state = self._attempt(x)
        if not answers:
            check_logits(step.logits)
        if not state:
            log.warning(
                "%s: the loss, its gradients or the new weights of batch %d are not finite. Nothing of it was kept.",
                self.name,
                self.batches,
            )
            self._before.restore()
            self._batch.skipped = True
        return step

    def _attempt(self, x: Tensor) -> tuple[Step, bool, bool]:
        """The method's step, whether its answers are finite, and whether all that it learned is."""
        step = self.adapt(x)
        self._commit(self)
        learned = torch.stack([self._batch.finite, *all_finite(self._before.changed())]).all()
        label, first = step.logits.argmax(1), step.logits if self._batch.first is None else self._batch.first
        found = [step.logits.isfinite().all(), learned, (label == label[0]).all(), are_probabilities(first)]
        answers, state, one, probabilities = torch.stack(found).tolist()
        self._advise(x, one, probabilities)
        return step, answers, state

    def _advise(self, x: Tensor, one_class: bool, probabilities: bool) -> None:
        """Warn, once each, of a model without logits, and of batches that are too small or of one class."""
        n = len(x)
        if probabilities and self.batches == 0 and "probabilities" not in self._warned:
            self._warned.add("probabilities")
            log.warning(
                "%s: the model gives probabilities instead of logits: none is below 0, and those of a sample sum up to "
                "1. Taken for logits they look unsure, and learning from them does harm. Leave out its last softmax.",
                self.name,
            )
        if not norms.uses_batch(self.network):
            return
        if n < FEW and "few" not in self._warned:
            self._warned.add("few")
            log.warning(
                "%s: batches of %d are too small for batch statistics. Give %d samples or more, or use "
                'statistics="auto", which is the default without a preset.',
                self.name,
                n,
                FEW,
            )
        if n > 1 and one_class and "one class" not in self._warned:
            self._warned.add("one class")
            log.warning(
                "%s: all %d samples of batch %d are predicted as one class. If classes come one after the other, batch "
                'statistics do harm: use statistics="auto". If not, look at the data, or lower lr.',
                self.name,
                n,
                self.batches,
            )

    def _commit(self, module: nn.Module) -> None:
        """Let statistics of these networks that follow the stream take in what they have seen of this batch."""
        norms.commit_statistics(module)
        if self._batch.predicted is not None:
            networks.overwrite([self.stream_recent], [self._batch.predicted])
            self._batch.predicted = None

    def expected(self, x: Tensor) -> Tensor:
        """The logits of the source's weights under the statistics that the method works with, once per batch."""
        if self._batch.reference is None:
            with torch.no_grad():
                self._batch.reference = self.run(self.source_model, x)
        return self._batch.reference

    def _source_logits(self, x: Tensor) -> Tensor:
        with norms.source_statistics(self.source_model, self.statistics):
            return self.run(self.source_model, x)

    def _read(self, x: Tensor, seen: Mapping[str, Tensor] | None = None, drift: Inspection | None = None) -> bool:
        """Read on the host, in one synchronisation, whether the batch is valid, what was observed, and boundaries."""
        seen = seen or {}
        numbers = {name: value for name, value in seen.items() if value.dim() == 0}
        wanted = [*torch.aminmax(x), *([] if drift is None else [drift.boundary]), *numbers.values()]
        low, high, *rest = torch.stack([value.detach().to(torch.float32) for value in wanted]).tolist()
        check_values(low, high, value_range(x) if self.inputs == "auto" else None, self._view_maker(x))
        boundary = drift is not None and bool(rest.pop(0))
        self._batch.observed = {**seen, **dict(zip(numbers, rest, strict=True))}
        return boundary

    def follows_batch(self, x: Tensor) -> bool:
        """Whether BatchNorm layers normalise this batch with statistics that it decides on; auto ones only images."""
        return norms.follows_batch(self.source_model) and (x.dim() >= 4 or not norms.is_auto(self.source_model))

    def _compare(self, x: Tensor) -> None:
        """For auto statistics: what the source network's predictions and layers say about the batch."""
        if not norms.is_auto(self.source_model):
            return
        if x.dim() < 4:
            norms.expect(self, NOTHING)
        else:
            recent = beside(self.stream_recent, len(x))
            for part in probes(x):
                logits = self.run(self.source_model, part)
                if found := norms.excesses(self.source_model):
                    self._batch.predicted = predictions(logits.detach()) + recent
                    norms.expect(self, believe(self._batch.predicted, found, len(x) + recent[0]))
            if self._networks and self.whole_batches:
                self.expected(x)
                norms.keep_corrections(self.source_model)
