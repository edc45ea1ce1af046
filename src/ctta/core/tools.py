"""What a method works with: passes through networks, augmented views, features, and steps of the optimiser."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import ModelError, StateError
from ctta.base.randomness import Randomness
from ctta.core import inputs, networks, optim
from ctta.core import statistics as norms
from ctta.core.forward import Forward
from ctta.core.settings import Augmentation, Features, Normalization, OptimizerSettings
from ctta.core.state import AdapterState
from ctta.core.statistics import Statistics
from ctta.core.views import ViewKind, Views, default_views, many_views


@dataclass
class CurrentBatch:
    """What lives only while one batch is processed."""

    random: Randomness
    finite: Tensor  # 0-d bool: whether all losses and gradients were
    observed: Mapping[str, Any] = field(default_factory=dict)
    forwards: int = 0  # samples that went through a network
    backwards: int = 0
    idle: Tensor | None = None  # whether the step was left out because there was nothing to learn
    first: Tensor | None = None  # what a network answered in the first pass
    reference: Tensor | None = None  # the source's weights predict it under the stream's statistics, if they did so
    predicted: Tensor | None = None  # what is known of predictions for this batch and the recent images
    restored: bool = False  # whether the weights had to go back to the source's
    skipped: bool = False  # whether nothing was kept of what was learned, because it was not finite


class MethodTools(AdapterState):
    """The part of an adapter that a method calls in `build`, `study` and `adapt`."""

    source_model: nn.Module
    classes: int
    views: Views | None
    _networks: list[nn.Module]
    _forward: Forward
    _current: CurrentBatch | None

    def copy_source(self, *, many_passes: bool = False) -> nn.Module:
        """A network of the method's own that starts at the source.

        One for `many_passes` per batch takes the layout that the execution asks for. Sums in another order differ in
        the last digits, so the networks of methods whose numbers agree with public code stay as they were given.
        """
        network = norms.copied(self.source_model)
        norms.follow_corrections(network, self.source_model)
        self._networks.append(network)
        if many_passes:
            self._forward.lay_out(network)
        return network

    def train_on(self, parameters: Iterable[nn.Parameter]) -> None:
        """Train these parameters; the optimiser is made from the configuration."""
        trained = [parameter for parameter in parameters if parameter.is_floating_point()]
        assert isinstance(self.config, OptimizerSettings)
        self.optimizer = optim.make_optimizer(trained, self.config, type(self).__name__)

    def run(self, network: nn.Module, x: Tensor, *, grad: bool = False) -> Tensor:
        """The one door for every network pass. `grad` says whether a graph is wanted."""
        logits = self._forward.run(network, x, grad=grad)
        self._batch.forwards += len(x)
        if self._batch.first is None:
            self._batch.first = logits.detach()
        return logits

    def run_part(self, call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """A pass with a graph that ends before the logits, or elsewhere than in them."""
        found = self._forward.run_part(call, x)
        self._batch.forwards += len(x)
        return found

    def run_views(self, network: nn.Module, x: Tensor, count: int, *, antithetic: bool = False) -> Iterator[Tensor]:
        """Logits of `count` augmented views, without gradient; each view is normalised with its own statistics."""
        make = partial(self.make_views, antithetic=antithetic)
        for logits in self._forward.run_views(network, x, count, make):
            self._batch.forwards += len(x)
            yield logits

    def find_head(self) -> int:
        """Settle which layer is the head; gives how many features go into it."""
        name = self.config.head if isinstance(self.config, Features) else None
        self.head: str = networks.find_head(self.source_model, self.classes, name)
        return networks.feature_width(self.source_model.get_submodule(self.head))

    def run_features(self, network: nn.Module, x: Tensor, *, grad: bool = False) -> tuple[Tensor, Tensor]:
        """A pass as in `run`; gives the features, (N, D), and the logits."""
        head, seen = network.get_submodule(self.head), []
        hook = head.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(args[0] if args else kwargs["input"]), with_kwargs=True
        )
        try:
            logits = self.run(network, x, grad=grad)
        finally:
            hook.remove()
        features = networks.pooled(seen[-1], head) if seen else None
        if features is None or features.shape != (len(x), networks.feature_width(head)):
            shape = "nothing" if features is None else f"features of shape {tuple(features.shape)}"
            raise ModelError(
                f"The head was taken to be {self.head!r}, and it was given {shape}; expected ({len(x)}, "
                f"{networks.feature_width(head)}). Name the layer whose input are the features: head='fc'."
            )
        return features.to(x.dtype), logits

    def make_views(
        self, x: Tensor, count: int = 1, together: int = 1, *, kind: ViewKind = "full", antithetic: bool = False
    ) -> Iterator[Tensor]:
        """`count` augmented views of the batch, `together` of them at a time in one tensor."""
        maker = self._view_maker(x, kind)
        assert maker is not None
        randoms = itertools.islice(self.random.antithetic() if antithetic else itertools.repeat(self.random), count)
        while part := list(itertools.islice(randoms, together)):
            yield many_views(maker, x, part)

    def learn(self, loss: Tensor, *, skip: Tensor | None = None, share: Tensor | float = 1.0) -> Tensor:
        """One optimiser step at this share of the rate, unless `skip`, a 0-d bool, says that there is nothing to learn.

        If the loss or a gradient is not finite, all state goes back to where it was before the batch.
        """
        self.differentiate(loss)
        self.descend(skip=skip, share=share)
        return loss.detach()

    def differentiate(self, loss: Tensor) -> None:
        """The gradients of what learns, in `.grad`, for methods that do something between them and the step."""
        assert self.optimizer is not None
        self._batch.backwards += 1
        self._batch.finite = self._batch.finite & optim.differentiate(self.optimizer, loss)

    def descend(self, *, skip: Tensor | None = None, share: Tensor | float = 1.0) -> None:
        """The optimiser step with the gradients that are there, at this share of the rate.

        There is none if they are not finite or `skip` is set.
        """
        assert self.optimizer is not None
        finite = self._batch.finite
        optim.descend(self.optimizer, ~finite if skip is None else ~finite | skip, share)
        self._batch.idle = None if skip is None else skip & finite

    def follow(self, followers: Iterable[Tensor], leaders: Iterable[Tensor], keep: float) -> None:
        """followers <- keep followers + (1 - keep) leaders, in place."""
        networks.interpolate(followers, leaders, 1 - keep)

    def forget(self) -> None:
        """What learns goes back to where it started, and so does the optimiser; for methods that do so per sample."""
        networks.overwrite(*self.trained_and_source())
        if self.optimizer is not None:
            optim.clear_moments(self.optimizer)

    @property
    def observed(self) -> Mapping[str, Any]:
        """What `observe` computed for this batch; 0-d tensors are numbers here."""
        return self._batch.observed

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that learn."""
        return [] if self.optimizer is None else optim.trained_parameters(self.optimizer)

    def trained_and_source(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters that learn and where they started, as far as they are copies of the source's."""
        learning, source = {id(parameter) for parameter in self.trained}, list(self.source_model.parameters())
        pairs = [pair for network in self._networks for pair in zip(network.parameters(), source, strict=True)]
        kept = [pair for pair in pairs if id(pair[0]) in learning]
        return [own for own, _ in kept], [start for _, start in kept]

    @property
    def random(self) -> Randomness:
        """This batch's randomness, a function of (seed, batch number)."""
        return self._batch.random

    @property
    def placement(self) -> tuple[torch.device, torch.dtype]:
        """Device and dtype of the model's weights."""
        return inputs.placement(self.source_model)

    @property
    def statistics(self) -> Statistics:
        """The kind of BatchNorm statistics this method works with."""
        if not isinstance(self.config, Normalization):
            return "source"
        # At full weight, mixed statistics are the batch's, and the layer's own kernel is faster.
        full = self.config.statistics == "mixed" and self.config.batch_weight == 1
        return "batch" if full else self.config.statistics

    @property
    def _batch(self) -> CurrentBatch:
        if self._current is None:
            raise StateError("This is part of adapt(): call step(x), predict(x) or source(x).")
        return self._current

    def _view_maker(self, x: Tensor, kind: ViewKind = "full") -> Views | None:
        """What makes augmented views of this batch, for a method that wants any."""
        if not isinstance(self.config, Augmentation):
            return None
        return self.views or default_views(x, self.config.draw, kind)
