"""Passes through networks: one batch, or many views of it in chunks and side by side, as the execution says.

A network that does not go along, in a layout or beside another pass, is run the way it was given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ctta import layers
from ctta.errors import InputError, ModelError
from ctta.execution import Execution, compiled
from ctta.lanes import side_by_side
from ctta.randomness import Randomness

MakeViews = Callable[[Tensor, int], Iterator[Tensor]]


class Passes:
    """Runs networks, and knows what it found out about them."""

    def __init__(self, execution: Execution, classes: int, relaid: Callable[[], None]) -> None:
        self.execution, self.classes = execution, classes
        self.relaid = relaid  # called where a network's weights were laid out anew
        self.quick: list[nn.Module] = []  # networks in channels-last
        self.alone: list[nn.Module] = []  # networks whose views go one after the other

    def lay_out(self, network: nn.Module) -> None:
        """Give a network the layout that hardware likes."""
        if self.execution.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.quick.append(network)

    def run(self, network: nn.Module, x: Tensor, *, grad: bool = False) -> Tensor:
        """The logits of a batch. `grad` says whether a graph is wanted."""
        if self.execution.compile and not compiled(network):
            network.compile()
        quick = self._quick(network, x)
        try:
            logits = self._pass(network, x, quick=quick, grad=grad)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if quick and "view size is not compatible" in str(error):
                self._lay_out_as_given(network)
                return self.run(network, x, grad=grad)
            raise _explained(error, x) from error
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(
                f"The model must map {tuple(x.shape)} to logits of shape ({len(x)}, classes). It gave {shape}. Wrap it "
                "so that forward returns the logits alone."
            )
        if logits.shape[1] != self.classes:
            raise ModelError(
                f"The model gave {logits.shape[1]} classes, but its last linear layer says {self.classes}. "
                f"Pass classes={logits.shape[1]}."
            )
        return logits.to(x.dtype)

    def run_views(
        self, network: nn.Module, x: Tensor, count: int, make: MakeViews, random: Randomness
    ) -> Iterator[Tensor]:
        """Logits of `count` views of the batch, without gradient; each view is normalised with its own statistics."""
        together = lanes = 1
        if not self.execution.compile and layers.can_group(network):
            lanes = min(count, self.execution.passes_at_once(x))
            together = min(self.execution.views_in_a_pass(x), math.ceil(count / lanes))

        def chunks() -> Iterator[Tensor]:
            views = make(x, count)
            for start in range(0, count, together):
                yield _joined(list(itertools.islice(views, min(together, count - start))))

        if lanes > 1 and network not in self.alone:
            logits = self._side_by_side(network, x, chunks(), lanes, random)
            if logits is not None:
                yield from logits
                return
        for chunk in chunks():
            views = len(chunk) // len(x)
            with layers.grouped_statistics(network, views):
                answers = self.run(network, chunk)
            del chunk  # before the next is made
            yield from answers.chunk(views)

    def _side_by_side(
        self, network: nn.Module, x: Tensor, chunks: Iterator[Tensor], lanes: int, random: Randomness
    ) -> list[Tensor] | None:
        """The logits of all views, made in threads. None, and all as before, where it takes one pass after the other:

        where the network draws random numbers, whose order would be chance; and where it fails, so that `run` finds out
        what there is to say or to do about it.
        """
        generators = (random.host, torch.default_generator)
        before = [generator.get_state() for generator in generators]
        quick = self._quick(network, x)

        def work(twin: nn.Module, chunk: Tensor) -> tuple[Tensor, ...]:
            views = len(chunk) // len(x)
            with layers.grouped_statistics(twin, views):
                logits = self._pass(twin, chunk, quick=quick)
            if logits.shape != (len(chunk), self.classes):
                raise ModelError(f"Logits of shape {tuple(logits.shape)}.")
            return tuple(logits.to(x.dtype).chunk(views))

        # A model may keep something in its attributes while it runs, so each lane has one of its own.
        twins = [network, *(layers.twin(network) for _ in range(lanes - 1))]
        try:
            made = side_by_side([partial(work, twin) for twin in twins], chunks)
        except Exception:
            made = None
        if made is None or not torch.equal(generators[1].get_state(), before[1]):
            self.alone.append(network)
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)
            return None
        return [logits for answers in made for logits in answers]

    def _pass(self, network: nn.Module, x: Tensor, *, quick: bool, grad: bool = False) -> Any:
        # A model may change its input in place, and the batch is needed again.
        given = x.clone(memory_format=torch.channels_last if quick else torch.contiguous_format)
        with self.execution.scope(x.device, grad=grad):
            return network(given)

    def _quick(self, network: nn.Module, x: Tensor) -> bool:
        return x.dim() == 4 and network in self.quick

    def _lay_out_as_given(self, network: nn.Module) -> None:
        """For models whose code takes the order of values in memory for granted (`view` behind a convolution)."""
        self.quick.remove(network)
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        layers.discard_statistics(network)
        self.relaid()


def _joined(views: list[Tensor]) -> Tensor:
    """Views in one tensor; one alone is not copied."""
    return torch.cat(views) if len(views) > 1 else views[0]


def _explained(error: Exception, x: Tensor) -> Exception:
    if "more than 1 value per channel" in str(error):
        return InputError(
            f"A BatchNorm layer saw one value a channel in a batch of {len(x)}: batch statistics need more. Use larger "
            'batches, or statistics="running" (or "mixed").'
        )
    return ModelError(f"The model failed on a batch of shape {tuple(x.shape)}, {x.dtype}: {error}")
