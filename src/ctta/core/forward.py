"""Passes through networks: one batch, or many views of it in chunks and side by side, as the execution says.

A network that does not go along, in a layout or beside another pass, is run the way it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import ConfigError, InputError, ModelError
from ctta.base.randomness import Randomness
from ctta.core import networks as layers
from ctta.core.execution import Execution, compiled
from ctta.core.parallel import side_by_side

MakeViews = Callable[[Tensor, int, int], Iterator[Tensor]]  # of a batch, so many, so many at a time


class Passes:
    """Runs networks, and knows what it found out about them."""

    def __init__(self, execution: Execution, classes: int, relaid: Callable[[], None]) -> None:
        self.execution, self.classes = execution, classes
        self.relaid = relaid  # called where a network's weights were laid out anew
        self.quick: list[nn.Module] = []  # networks in channels-last
        self.tried: dict[tuple[nn.Module, bool, bool], bool] = {}  # whether views may go together, side by side

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
            if quick and _order_of_values(error):
                self._lay_out_as_given(network)
                return self.run(network, x, grad=grad)
            if self.execution.compile and type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
                raise ConfigError(
                    f"compile=True, and torch.compile failed: {error}. It needs a compiler, g++ on a CPU or Triton "
                    "on a GPU. Install one, or leave compile off."
                ) from error
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
        together, lanes = self.execution.arrange(x, count) if layers.can_group(network) else (1, 1)
        heard = lanes > 1 and layers.hooked(network)
        if together * lanes > 1 and not heard and self._independent(network, x, together > 1, lanes > 1):
            before = random.state()
            try:
                answers = self._in_chunks(network, x, make(x, count, together), lanes)
            except Exception:  # one view at a time needs less memory, or finds the words for what is wrong
                random.restore(before)
            else:
                yield from answers
                return
        for view in make(x, count, 1):
            yield self.run(network, view)

    def _in_chunks(self, network: nn.Module, x: Tensor, chunks: Iterator[Tensor], lanes: int) -> list[Tensor]:
        """The logits of all views, a chunk in a pass and so many passes at the same time."""
        quick = self._quick(network, x)

        def work(module: nn.Module, chunk: Tensor) -> tuple[Tensor, ...]:
            groups = len(chunk) // len(x)
            with layers.grouped_statistics(module, groups):
                logits = self._pass(module, chunk, quick=quick)
            if logits.shape != (len(chunk), self.classes):
                raise ModelError(f"Logits of shape {tuple(logits.shape)}.")
            return tuple(logits.to(x.dtype).chunk(groups))

        # A model may keep something in its attributes while it runs, so each lane has one of its own.
        modules = [network, *(layers.twin(network) for _ in range(lanes - 1))]
        made = side_by_side([partial(work, module) for module in modules], chunks)
        return [logits for answers in made for logits in answers]

    def _independent(self, network: nn.Module, x: Tensor, together: bool, beside: bool) -> bool:
        """Whether a view's answer is the same in a pass with others, or beside it, as alone; tried at the first batch.

        It is not where a network looks across the batch in its own way, draws random numbers, or remembers its passes.
        Twins are asked, so that what it remembers stays as it is.
        """
        key = (network, together, beside)
        if key not in self.tried:
            quick = self._quick(network, x)
            try:
                self.tried[key] = _agree(network, x, together, quick)
            except Exception as error:
                if isinstance(error, torch.OutOfMemoryError):
                    return False  # the batch is too large for a trial, and the next may not be
                if quick and _order_of_values(error):
                    self._lay_out_as_given(network)
                    return self._independent(network, x, together, beside)
                self.run(network, x)  # if this fails too, the batch is to blame
                self.tried[key] = False
        return self.tried[key]

    def _pass(self, network: nn.Module, x: Tensor, *, quick: bool, grad: bool = False) -> Any:
        with self.execution.scope(x.device, grad=grad):
            return network(_given(x, quick))

    def _quick(self, network: nn.Module, x: Tensor) -> bool:
        return x.dim() == 4 and network in self.quick

    def _lay_out_as_given(self, network: nn.Module) -> None:
        """For models whose code takes the order of values in memory for granted (`view` behind a convolution)."""
        self.quick.remove(network)
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        layers.discard_statistics(network)
        self.relaid()


def _given(x: Tensor, quick: bool) -> Tensor:
    """A copy in the network's layout: a model may change its input in place, and the batch is needed again."""
    return x.clone(memory_format=torch.channels_last if quick else torch.contiguous_format)


def _agree(network: nn.Module, x: Tensor, together: bool, quick: bool) -> bool:
    """Whether twins of the network that take some batches in turn, two in a pass or one, say what one twin says.

    In full precision, so that nothing but rounding lies between them.
    """
    twice = torch.arange(len(x), device=x.device) // 2
    batches = [x, x[twice].flip(-1), x.flip(0)[twice], x[twice] / 2][: 4 if together else 2]  # unlike in any statistic
    size = 2 if together else 1
    exact = torch.autocast(x.device.type, enabled=False)
    with exact, torch.no_grad(), torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
        alone = layers.twin(network)
        expected = torch.cat([alone(_given(batch, quick)) for batch in batches])
        found = []
        for start in range(0, len(batches), size):
            module, chunk = layers.twin(network), torch.cat(batches[start : start + size])
            with layers.grouped_statistics(module, size):
                found.append(module(_given(chunk, quick)))
    given = torch.cat(found)
    limit = torch.finfo(x.dtype).eps ** 0.5 * expected.nan_to_num().abs().max()
    agree = ((given - expected).abs() <= limit) | (given == expected) | (given.isnan() & expected.isnan())
    return bool(agree.all())


def _order_of_values(error: Exception) -> bool:
    """Whether a model took for granted how values lie in memory."""
    return "view size is not compatible" in str(error)


def _explained(error: Exception, x: Tensor) -> Exception:
    if "more than 1 value per channel" in str(error):
        return InputError(
            f"A BatchNorm layer saw one value a channel in a batch of {len(x)}: batch statistics need more. Use larger "
            'batches, or statistics="running" (or "mixed").'
        )
    return ModelError(f"The model failed on a batch of shape {tuple(x.shape)}, {x.dtype}: {error}")
