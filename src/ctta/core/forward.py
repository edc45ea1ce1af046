"""Forward passes: one batch, or many augmented views of it in chunks and in parallel, as the execution says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ctta.base.errors import ConfigError, InputError, ModelError
from ctta.base.text import failure
from ctta.core.execution import Execution
from ctta.core.networks import has_hooks, shared_weight_copy
from ctta.core.parallel import run_parallel
from ctta.core.statistics import can_group, grouped_statistics, uses_batch

ONE_CHANNEL = "to have 1 channels, but got 3"  # torch's words of a convolution
MakeViews = Callable[[Tensor, int, int], Iterator[Tensor]]  # of a batch, so many, so many per chunk


class Forward:
    """Runs networks as the execution says, and checks that they give logits."""

    def __init__(self, execution: Execution, classes: int) -> None:
        self.execution, self.classes = execution, classes
        self.channels_last: list[nn.Module] = []  # networks in that layout

    def lay_out(self, network: nn.Module) -> None:
        """Put a network into channels-last layout if the execution asks for it."""
        if self.execution.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.channels_last.append(network)

    def run(self, network: nn.Module, x: Tensor, *, grad: bool = False) -> Tensor:
        """The logits of a batch; `grad` says whether a graph is wanted."""
        if self.execution.compile and not _compiled(network):
            network.compile()
        return self._pass(network, x, last=x.dim() == 4 and network in self.channels_last, grad=grad)

    def run_part(self, call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """What a part of a network makes of a batch, with a graph."""
        try:
            with self.execution.scope(x.device, grad=True):
                return call(x.clone()).to(x.dtype)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # a model is anybody's code
            raise ModelError(f"A part of the model failed on a batch of {tuple(x.shape)}: {failure(error)}") from error

    def run_views(self, network: nn.Module, x: Tensor, count: int, make: MakeViews) -> Iterator[Tensor]:
        """Logits of `count` augmented views of the batch, without gradient, each normalised with its own statistics."""
        per_pass, parallel = self.execution.arrange(x, count) if can_group(network) else (1, 1)
        chunks = make(x, count, per_pass)
        # Hooks expect one pass at a time, in the thread that called. A network may also keep something in its
        # attributes while it runs, so each parallel pass has modules of its own.
        copies = 0 if has_hooks(network) else parallel - 1
        modules = [network, *(shared_weight_copy(network) for _ in range(copies))]
        last = x.dim() == 4 and network in self.channels_last
        passes = [partial(self._views, module, size=len(x), last=last) for module in modules]
        found: Iterable[Tensor] = run_parallel(passes, chunks) if copies else map(passes[0], chunks)
        for logits in found:
            yield from logits.chunk(len(logits) // len(x))

    def _views(self, network: nn.Module, chunk: Tensor, *, size: int, last: bool) -> Tensor:
        with grouped_statistics(network, len(chunk) // size):
            return self._pass(network, chunk, last=last, grad=False)

    def _pass(self, network: nn.Module, x: Tensor, *, last: bool, grad: bool) -> Tensor:
        # A copy: a model may change its input in place, and the batch is needed again.
        given = x.clone(memory_format=torch.channels_last if last else torch.contiguous_format)
        try:
            with self.execution.scope(x.device, grad=grad):
                logits = network(given)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # a model is anybody's code
            raise self._explained(error, network, x, last) from error
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(
                f"The model must map {tuple(x.shape)} to logits of shape ({len(x)}, classes). It gave {shape}. Wrap it "
                "so that forward returns only the logits."
            )
        if logits.layout != torch.strided or logits.device != x.device or logits.is_complex():
            raise ModelError(
                f"The model must give real, dense logits on {x.device}. It gave {logits.dtype}, {logits.layout} on "
                f"{logits.device}."
            )
        if logits.shape[1] != self.classes:
            raise ModelError(
                f"The model gave {logits.shape[1]} classes, but its last linear layer says {self.classes}. "
                f"Pass classes={logits.shape[1]}."
            )
        return logits.to(x.dtype)

    def _explained(self, error: BaseException, network: nn.Module, x: Tensor, last: bool) -> Exception:
        if self.execution.compile and type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
            return ConfigError(
                f"compile=True, and torch.compile failed: {error}. It needs a compiler, g++ on a CPU or Triton on a "
                "GPU. Install one, or leave compile off."
            )
        if len(x) == 1 and isinstance(error, ValueError) and uses_batch(network):
            return InputError(
                f"The model failed on a batch of one sample: {error}. Batch statistics need more than one value per "
                'channel. Use larger batches, or statistics="running" (or "mixed").'
            )
        layout = (
            " The network is in channels-last layout; if its code calls view() behind a convolution, use reshape() "
            "there, or set channels_last to false (execution: {channels_last: false} in an experiment)."
        )
        said = str(error) if isinstance(error, RuntimeError | ValueError | TypeError) else failure(error)
        if ONE_CHANNEL in said and x.shape[1] == 3:
            said = (
                "a convolution takes one channel and got 3. If the model takes grey images, give them one channel: "
                "x.mean(1, keepdim=True), `ctta adapt --channels 1` or `ctta serve --set channels=1`."
            )
        words = f"The model failed on a batch of shape {tuple(x.shape)}, {x.dtype}: {said}"
        return ModelError(words + (layout if last else ""))


def _compiled(network: nn.Module) -> bool:
    """Whether the network has been given to the compiler."""
    return getattr(network, "_compiled_call_impl", None) is not None
