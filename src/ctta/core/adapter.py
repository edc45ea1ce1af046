"""The one abstraction: a model that predicts and adapts, batch by batch.

A method declares `config_type` and `presets`, registers what it changes in `build()`, and does its one duty in
`adapt(x)`. Everything else, the promises that hold for all methods, is here.
"""

from __future__ import annotations

import copy
import itertools
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from ctta.base.config import Config, setting
from ctta.base.errors import ConfigError, InputError, ModelError, StateError, nearest
from ctta.base.image_size import is_large
from ctta.base.randomness import Randomness
from ctta.core import networks as layers
from ctta.core.drift import Detector, Look
from ctta.core.execution import Execution
from ctta.core.forward import Passes
from ctta.core.views import Draw, ViewKind, Views, default_views, many_views

log = logging.getLogger("ctta")

PAPER = "paper"  # the variant that adds nothing to a preset
RANGE_SLACK = 1e-3  # how far a pixel may lie outside [0, 1] (resizing and float rounding overshoot a little)


@dataclass(frozen=True)
class Step:
    """What one batch gave: the answer, and what there is to know about it.

    `info` and `samples` stay on the device and are read when somebody asks for them.
    """

    logits: Tensor  # (N, C), detached
    info: Mapping[str, Tensor] = field(default_factory=dict)  # 0-d: loss, confidence, threshold, selected, views ...
    samples: Mapping[str, Tensor] = field(default_factory=dict)  # (N,): confidence, selected ...


@dataclass(frozen=True)
class Traits:
    """What a method needs and what it costs, as data: tables and `ctta list methods` show it, a test counts the passes.

    Passes are whole batches through a network, at the settings of preset "cifar10".
    """

    learns: str  # "nothing", "norm parameters", "all parameters" ...
    forwards: tuple[float, float]  # fewest and most forward passes a batch
    backwards: tuple[int, int]  # fewest and most backward passes a batch
    answers: Literal["before", "after"] = "before"  # whether the answer comes before or after the batch's update
    source: Literal["none", "statistics", "samples"] = "none"  # what `prepare` keeps of the source data
    boundaries: bool = False  # whether it uses the hint that a domain starts


@dataclass(frozen=True)
class Training(Config):
    """The optimiser. Settings of every method that learns."""

    optimizer: Literal["adam", "sgd"] = setting("adam", "Adam with betas (.9, .999), or SGD with momentum .9.")
    lr: float = setting(1e-3, "Learning rate.", low=0.0)
    nesterov: bool = setting(True, "Nesterov momentum; for SGD only.")
    weight_decay: float = setting(0.0, "Weight decay.", low=0.0)


@dataclass(frozen=True)
class Normalization(Config):
    """Which statistics BatchNorm layers use. Settings of every method that does not keep the source's."""

    statistics: Literal["batch", "mixed", "running"] = setting(
        "batch", "Statistics of BatchNorm layers: the batch's, mixed with the source's, or an average along the stream."
    )
    batch_share: float = setting(
        0.1, "Share of the batch in mixed statistics; step of the average in running ones.", low=0.0, high=1.0
    )


@dataclass(frozen=True)
class Features(Config):
    """Where the features are. Settings of every method that looks at them, or leaves the head alone."""

    head: str | None = setting(
        None, "Name of the model's last layer, such as 'fc', whose input are the features; none: it is found."
    )


@dataclass
class _Turn:
    """What lives only while one batch is at work."""

    random: Randomness
    views: Views | None
    pending: list[Tensor]  # smallest and largest value of the batch, whether a domain starts with it; not read yet
    skipped: Tensor
    look: Look | None = None  # what the drift detector saw
    forwards: int = 0  # samples that went through a network
    backwards: int = 0
    idle: Tensor | None = None  # whether the step was left out because there was nothing to learn


class Adapter(nn.Module, ABC):
    """Wraps a classifier: `logits = adapter(x)` predicts, then adapts.

    Everything that changes over the stream lives in a submodule, a buffer or `self.optimizer`.

    model     any `nn.Module` that maps (N, ...) to (N, C) logits; the adapter works on its own copy
    config    a whole configuration; without one, the preset decides
    preset    a name from `presets`, a variant such as "paper" (the default), whose preset goes by the input, or both:
              "cifar100+lean"
    seed      all randomness is a function of (seed, batch number)
    classes   C, where it cannot be read off the model's last linear layer
    views     how many views (the field of that name), or an object that makes them, see `ctta.views.Views`
    execution precision, memory layout and compilation of all passes, see `ctta.Execution`
    boundaries "told" by whoever calls `begin_domain`, or "detected" from the inputs, see `ctta.core.drift`
    fields    single fields of the configuration, over preset or config
    """

    name: ClassVar[str]  # in code and configurations
    title: ClassVar[str]  # in tables
    config_type: ClassVar[type[Config]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cifar10": {}, "cifar100": {}, "imagenet": {}, "clouds": {}}
    traits: ClassVar[Traits] = Traits("nothing", forwards=(1, 1), backwards=(0, 0))
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {PAPER: {}}  # settings over any preset
    needs_norm: ClassVar[bool] = False  # whether a model without a norm layer makes no sense for this method

    optimizer: torch.optim.Optimizer | None
    drift: Detector | None
    skipped: Tensor

    def __init__(
        self,
        model: nn.Module,
        config: Config | None = None,
        *,
        preset: str | None = None,
        seed: int = 0,
        classes: int | None = None,
        views: int | Views | None = None,
        execution: Execution | None = None,
        boundaries: Literal["told", "detected"] = "told",
        **fields: Any,
    ) -> None:
        super().__init__()
        if boundaries not in ("told", "detected"):
            raise ConfigError(f"boundaries must be 'told' or 'detected'. Got {boundaries!r} instead.")
        if isinstance(views, int):
            fields["views"], views = views, None
        self.views = views
        self._overrides = fields
        self._variant = None if config is not None else PAPER if preset is None else preset
        self._preset_by_input = self._variant in self.variants
        self.preset, self.config = self._made_with = self._settle(config, preset)
        self.seed = seed
        self.batches = 0
        self.prepared = False
        self.optimizer = None
        self._networks: list[nn.Module] = []
        self._lock = threading.Lock()
        self._current: _Turn | None = None

        with torch.inference_mode(False):
            self.source_model = _own_copy(model)
            self.classes = classes or layers.class_count(self.source_model) or 0
            if self.classes < 1:
                raise ModelError(
                    "The number of classes could not be read off the model: it has no linear layer and no 1x1 "
                    "convolution. Say it: classes=10."
                )
            if self.needs_norm and not layers.norm_layers(self.source_model):
                raise ModelError(
                    f"{type(self).__name__} adapts norm layers and this model has none (BatchNorm, LayerNorm, "
                    "GroupNorm, InstanceNorm, RMSNorm). Use a method that trains all parameters, such as 'cotta' or "
                    "'dss', or give it a model with norm layers."
                )
            self._passes = Passes(execution or Execution(), self.classes, self._align_moments)
            layers.forget_between_passes(self.source_model)
            layers.install_statistics(self.source_model, self.statistics, self.batch_share)
            device, _ = self.placement
            self.register_buffer("skipped", torch.zeros((), dtype=torch.int64, device=device))
            self.drift = Detector(device) if boundaries == "detected" else None
            self.build()
        self._initial = self._own_state()
        if not self._preset_by_input:
            self.review()

    # What settings are called.

    @classmethod
    def preset_name(cls, asked: str | None, shape: Sequence[int]) -> str:
        """The preset in full, "cifar10" or "cifar10+lean"; a variant alone goes by the shape of the batch."""
        asked = PAPER if asked is None else asked
        if asked in cls.variants:
            base = preset_by_input(shape)
            return base if asked == PAPER else f"{base}+{asked}"
        return asked

    @classmethod
    def preset_fields(cls, name: str) -> dict[str, Any]:
        """The fields that a preset sets."""
        base, _, variant = name.partition("+")
        variant = variant or PAPER
        if base not in cls.presets or variant not in cls.variants:
            known = [*cls.presets, *cls.variants, *(f"{base}+{one}" for base in cls.presets for one in cls.variants)]
            raise ConfigError(f"{cls.__name__} has no preset {name!r}. {nearest(name, known)}")
        return {**cls.presets[base], **cls.variants[variant]}

    # What a method fills in.

    def build(self) -> None:
        """Register networks (`copy_source`), buffers and the optimiser (`train_on`)."""

    def choose(self) -> None:
        """Say again what learns, where settings change before the first batch; for methods whose settings decide it."""
        self.train_on(self.trained)

    def review(self) -> None:
        """Log what is odd about the settings, once they are known."""

    @abstractmethod
    def adapt(self, x: Tensor) -> Step:
        """The method's one duty: predict, then learn. Grad mode and randomness are set; x is a batch and no more."""

    def answer(self, x: Tensor) -> Tensor:
        """Logits with the weights as they are now. Changes nothing."""
        return self.run(self.source_model, x)

    def begin_domain(self) -> None:
        """A hint that the stream has moved to another domain; the runner alone decides whether it is given.

        Where boundaries are detected it comes at the batch's `check`, before anything is learned from the batch. A pass
        may have gone before, so it is for buffers and not for weights.
        """

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take what is needed from source data, (x, y) batches; passes go through `run` as in `adapt`.

        What is found goes into buffers called `source_...`, which no reset touches.
        """

    # What a user calls.

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x).logits

    def step(self, x: Tensor) -> Step:
        """Predict, adapt, and say what happened."""
        if not self.prepared and self.traits.source != "none":
            raise StateError(
                f"{type(self).__name__} needs source data once before the stream: "
                "adapter.prepare((x, y) for x, y in source_batches)."
            )
        with self._scope(x, learning=True) as x:
            self._watch(x)
            step = self.adapt(x)
            self.check()
            layers.commit_statistics(self)
            if self.drift is not None and self._turn.look is not None:
                self.drift.keep(self._turn.look)
            self.skipped += self._turn.skipped
            self.batches += 1
            return self._complete(step)

    def predict(self, x: Tensor) -> Tensor:
        """The answer with the current weights. Nothing is learned, no state changes."""
        with self._scope(x) as x, torch.no_grad():
            logits = self.answer(x)
            self.check()
            return logits

    def source(self, x: Tensor) -> Tensor:
        """The answer of the unadapted model, with the source's own statistics."""
        with self._scope(x) as x, layers.source_statistics(self.source_model, self.statistics):
            logits = self.run(self.source_model, x)
            self.check()
            return logits

    def prepare(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Show the method source data, (x, y) batches, before the stream; what it keeps rides in the state.

        Methods that need none take no look at it.
        """
        if self.traits.source == "none":
            return
        if self.batches:
            raise StateError("The stream has begun; source data come before it. Call reset(), then prepare(source).")
        self.study(self._turns(source))
        self.prepared = True

    def restore_source(self) -> None:
        """Weights, statistics and optimiser go back to the source; counters and what the method has learned go on."""
        layers.restart_statistics(self.source_model)
        for network in self._networks:
            layers.overwrite(network.parameters(), self.source_model.parameters())
            layers.overwrite(network.buffers(), self.source_model.buffers())
        if self.optimizer is not None:
            for slots in self.optimizer.state.values():
                for value in slots.values():
                    value.zero_()

    def reset(self) -> None:
        """Everything goes back to the start: the same stream gives the same answers again."""
        self.restore_source()
        if (self.preset, self.config) != self._made_with:
            self._adopt(*self._made_with)
        layers.overwrite(self._own_tensors(), self._initial)
        self.batches = 0

    # What a method uses.

    def copy_source(self, *, quick: bool = False) -> nn.Module:
        """A network of the method's own that starts at the source; a quick one in the layout that hardware likes.

        Sums in another order differ in the last digits: where public code gives the same numbers it stays as given.
        """
        network = copy.deepcopy(self.source_model)
        self._networks.append(network)
        if quick:
            self._passes.lay_out(network)
        return network

    def train_on(self, parameters: Iterable[nn.Parameter]) -> None:
        """These parameters learn; the optimiser is made from the configuration."""
        trained = [parameter for parameter in parameters if parameter.is_floating_point()]
        if not trained:
            raise ModelError(
                f"{type(self).__name__} found nothing to learn: the model's norm layers have no weight and bias "
                "(affine=False). Use a method that trains all parameters, such as 'cotta' or 'dss'."
            )
        if any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in trained):
            raise ModelError(
                f"Weights in {trained[0].dtype} are too coarse to learn: small steps vanish in rounding. Give the "
                "model in float32, model.float(), and call the adapter under torch.autocast for speed."
            )
        for parameter in self.trained:
            parameter.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_()
        self.optimizer = _make_optimizer(trained, self.config)

    def run(self, network: nn.Module, x: Tensor, *, grad: bool = False) -> Tensor:
        """The one door for every network pass. `grad` says whether a graph is wanted."""
        turn = self._turn
        logits = self._passes.run(network, x, grad=grad)
        turn.forwards += len(x)
        return logits

    def run_views(self, network: nn.Module, x: Tensor, count: int) -> Iterator[Tensor]:
        """Logits of `count` views of the batch, without gradient; each view is normalised with its own statistics."""
        for logits in self._passes.run_views(network, x, count, self.make_views, self.random):
            self._turn.forwards += len(x)
            yield logits

    def find_head(self) -> int:
        """Settle which layer is the head; gives how many features go into it."""
        self.head: str = layers.find_head(self.source_model, self.classes, getattr(self.config, "head", None))
        return layers.feature_width(self.source_model.get_submodule(self.head))

    def run_features(self, network: nn.Module, x: Tensor, *, grad: bool = False) -> tuple[Tensor, Tensor]:
        """A pass as in `run`; gives the features, (N, D), and the logits."""
        head, seen = network.get_submodule(self.head), []
        watch = head.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(args[0] if args else kwargs["input"]), with_kwargs=True
        )
        try:
            logits = self.run(network, x, grad=grad)
        finally:
            watch.remove()
        features = layers.pooled(seen[-1], head) if seen else None
        if features is None or features.shape != (len(x), layers.feature_width(head)):
            shape = "nothing" if features is None else f"features of shape {tuple(features.shape)}"
            raise ModelError(
                f"The head was taken to be {self.head!r}, and it was given {shape}; expected ({len(x)}, "
                f"{layers.feature_width(head)}). Name the layer whose input are the features: head='fc'."
            )
        return features.to(x.dtype), logits

    def check(self, *signals: Tensor) -> list[float]:
        """Read 0-d signals, and whether the batch is valid and opens a domain, in the batch's one synchronisation."""
        pending, self._turn.pending = self._turn.pending, []
        wanted = [signal.detach().to(torch.float32) for signal in (*pending, *signals)]
        values: list[float] = torch.stack(wanted).tolist() if wanted else []
        if pending:
            self._check_values(*values[:2])
            if any(values[2 : len(pending)]):
                self.begin_domain()
        return values[len(pending) :]

    def learn(self, loss: Tensor, *, skip: Tensor | None = None) -> Tensor:
        """One optimiser step. A loss or gradient that is not finite never reaches the weights: the step is skipped.

        Where `skip`, a 0-d bool, is set there is nothing to learn: weights and moments stay as they are, too.
        """
        self.check()
        self.descend(self.differentiate(loss), skip=skip)
        return loss.detach()

    def differentiate(self, loss: Tensor) -> Tensor:
        """The gradients of what learns, in `.grad`; gives whether loss and gradients are finite, 0-d. No state changes.

        For methods that do something between the gradients and the step; `check` comes before `descend`.
        """
        assert self.optimizer is not None
        if not loss.requires_grad:
            raise ModelError(
                "The loss has no gradient: the model computes its answer under no_grad, or its weights were frozen by "
                "requires_grad_(False) on the adapter."
            )
        self.optimizer.zero_grad(set_to_none=True)  # an interrupted batch may have left some
        loss.backward()  # type: ignore[no-untyped-call]
        self._turn.backwards += 1
        gradients = [parameter.grad for parameter in self.trained if parameter.grad is not None]
        return loss.detach().isfinite() & torch.nn.utils.get_total_norm(gradients).isfinite()

    def descend(self, finite: Tensor, *, skip: Tensor | None = None) -> None:
        """The optimiser step with the gradients that are there; none where they are not finite or `skip` is set."""
        assert self.optimizer is not None
        left_out = ~finite if skip is None else ~finite | skip
        # The fused kernels read this flag on the device and leave weights and moments alone where it is set.
        self.optimizer.found_inf = left_out.to(torch.float32)  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._turn.skipped = self._turn.skipped + (~finite).to(torch.int64)
        if skip is not None:
            self._turn.idle = skip & finite

    @property
    def execution(self) -> Execution:
        """How networks are run."""
        return self._passes.execution

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that learn."""
        if self.optimizer is None:
            return []
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    @property
    def learned(self) -> Tensor:
        """1 where this batch's steps reached the weights, 0 where one was skipped; 0-d, read on the device alone."""
        return (self._turn.skipped == 0).to(self.placement[1])

    @property
    def random(self) -> Randomness:
        """This batch's randomness, a function of (seed, batch number)."""
        return self._turn.random

    @property
    def placement(self) -> tuple[torch.device, torch.dtype]:
        """Device and dtype of the model's weights."""
        for parameter in self.source_model.parameters():
            if parameter.is_floating_point():
                return parameter.device, parameter.dtype
        return torch.device("cpu"), torch.get_default_dtype()

    @property
    def statistics(self) -> layers.Statistics:
        """The kind of BatchNorm statistics this method works with."""
        kind: layers.Statistics = getattr(self.config, "statistics", "source")
        # At full share, mixed statistics are the batch's, and the layer's own kernel is faster.
        return "batch" if kind == "mixed" and self.batch_share == 1 else kind

    @property
    def batch_share(self) -> float:
        """The batch's share in mixed statistics, or the step of running ones."""
        share: float = getattr(self.config, "batch_share", 1.0)
        return share

    def make_views(self, x: Tensor, count: int = 1, together: int = 1, *, kind: ViewKind = "full") -> Iterator[Tensor]:
        """`count` views of the batch, so many at a time in one tensor."""
        maker = self._view_maker(x, kind)
        assert maker is not None
        paired = getattr(self.config, "opposite", False)
        randoms = itertools.islice(self.random.opposites() if paired else itertools.repeat(self.random), count)
        while part := list(itertools.islice(randoms, together)):
            yield many_views(maker, x, part)

    # State.

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "method": self.name,
            "preset": self.preset,
            "config": self.config.asdict(),
            "seed": self.seed,
            "batches": self.batches,
            "prepared": self.prepared,
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self._fit(state)
        self.seed, self.batches, self.prepared = state["seed"], state["batches"], state["prepared"]
        if self.optimizer is not None:
            # Copied, as weights are: the optimiser would go on with the tensors of the adapter that gave its state.
            self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
            self._align_moments()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Go on where the saved adapter was: weights, teacher, optimiser, thresholds, seed and counters."""
        if assign:
            raise StateError("assign=True would part the optimiser from its weights. Load without it.")
        saved = state_dict.get("_extra_state")
        if saved is None or saved["method"] != self.name:
            made_by = "something that is not an adapter" if saved is None else f"method {saved['method']!r}"
            raise StateError(f"This state was saved by {made_by}; it cannot go on in {self.name!r}.")
        ours = {name: getattr(value, "shape", None) for name, value in self.state_dict().items()}
        theirs = {name: getattr(value, "shape", None) for name, value in state_dict.items()}
        if strict and ours != theirs:
            self._same_boundaries(ours, theirs)
            unlike = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
            raise StateError(f"This state was saved from another model. Of {len(ours)} entries these differ: {unlike}.")
        self._fit(saved)
        return super().load_state_dict(state_dict, strict=strict)

    def train(self, mode: bool = True) -> Self:
        """Does nothing: modes are the method's business, whoever calls `train()` or `eval()` outside."""
        return self

    def extra_repr(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.config.asdict().items())
        return f"preset={self.preset!r}, {values}, seed={self.seed}, batches={self.batches}"

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        with torch.inference_mode(False):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            if self.optimizer is not None:
                for parameter, slots in self.optimizer.state.items():
                    for key, value in slots.items():
                        slots[key] = value.to(parameter.device) if key == "step" else value.to(parameter)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with torch.inference_mode(False):
            twin = type(self).__new__(type(self))
            memo[id(self)] = twin
            twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()

    # The inner workings.

    @property
    def _turn(self) -> _Turn:
        if self._current is None:
            raise StateError("This is part of adapt(): call step(x), predict(x) or source(x).")
        return self._current

    def _settle(self, config: Config | None, preset: str | None) -> tuple[str, Config]:
        """The configuration, and the name of where it comes from."""
        if config is not None:
            if not isinstance(config, self.config_type):
                raise ConfigError(
                    f"{type(self).__name__} takes a {self.config_type.__name__}. Got {type(config).__name__} instead."
                )
            if preset is not None:
                raise ConfigError("Give a config or a preset, not both: a config is complete.")
            return "own", config.replace(**self._overrides)
        name = self.preset_name(preset, (1, 3, 32, 32))
        return name, self._from_preset(name)

    def _from_preset(self, name: str) -> Config:
        return self.config_type.make({**self.preset_fields(name), **self._overrides})

    def _adopt(self, preset: str, config: Config) -> None:
        """Take other settings before anything has been learned."""
        self.preset, self.config = preset, config
        if self.optimizer is not None:
            self.choose()

    def _fit(self, saved: Mapping[str, Any]) -> None:
        """Take the settings that a state was saved with, or refuse it where others were asked for."""
        if saved["config"] != self.config.asdict():
            if not self._preset_by_input:
                config = self.config.asdict()
                changed = [f"{key}={value!r}" for key, value in saved["config"].items() if config.get(key) != value]
                raise StateError(
                    f"This state was saved with other settings. Make the adapter with {', '.join(changed)} to go on."
                )
            self._adopt(saved["preset"], self.config_type.make(saved["config"]))

    def _follow_input(self, x: Tensor) -> None:
        """Without a preset, the first batch decides: clouds, small or large images."""
        if self._preset_by_input and self.batches == 0:
            name = self.preset_name(self._variant, x.shape)
            if name != self.preset:
                self._adopt(name, self._from_preset(name))
            log.info("%s: settings of preset %r, by input %s: %s", self.name, name, tuple(x.shape[1:]), self.config)
            self.review()

    def _same_boundaries(self, ours: Iterable[str], theirs: Iterable[str]) -> None:
        """Refuse a state that was saved with a drift detector where there is none, or the other way round."""
        here, there = (any(name.startswith("drift.") for name in names) for names in (ours, theirs))
        if here != there:
            asked = "detected" if there else "told"
            raise StateError(
                f"This state was saved with other settings. Make the adapter with boundaries={asked!r} to go on."
            )

    def _watch(self, x: Tensor) -> None:
        """Let the drift detector look at the batch; its judgement is read with the rest."""
        if self.drift is not None:
            self._turn.look = look = self.drift.look(x)
            self._turn.pending.append(look.boundary)

    def _align_moments(self) -> None:
        """Lay out the optimiser's state as the weights are, which the fused kernels take for granted."""
        if self.optimizer is not None:
            for parameter, slots in self.optimizer.state.items():
                for name, value in slots.items():
                    if value.shape == parameter.shape and value.stride() != parameter.stride():
                        slots[name] = torch.empty_like(parameter).copy_(value)

    def _own_tensors(self) -> list[Tensor]:
        """State that is no network and changes along the stream: what the method registered itself."""
        own = [buffer for name, buffer in self.named_buffers(recurse=False) if not name.startswith("source_")]
        return own if self.drift is None else [*own, *self.drift.buffers()]

    def _own_state(self) -> list[Tensor]:
        return [tensor.clone() for tensor in self._own_tensors()]

    def _turns(self, source: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each batch of source data in a turn of its own."""
        for x, y in source:
            with self._scope(x) as checked:
                yield checked, y
                self.check()

    @contextmanager
    def _scope(self, x: Tensor, *, learning: bool = False) -> Iterator[Tensor]:
        """One batch's turn: exclusive, checked, with autograd on and randomness of its own."""
        if not self._lock.acquire(blocking=False):
            raise StateError(
                "This adapter is in the middle of a batch. One adapter serves one thread: make one for each thread, "
                "or hold a lock around the call."
            )
        try:
            with torch.inference_mode(False), torch.enable_grad():
                self._check_form(x)
                x = x.clone() if x.is_inference() else x.detach()
                if learning:
                    self._follow_input(x)
                views = self._view_maker(x)
                random = Randomness(self.seed, self.batches, x.device)
                self._current = _Turn(
                    random, views, pending=list(torch.aminmax(x)), skipped=torch.zeros_like(self.skipped)
                )
                with random.scoped():
                    yield x
        finally:
            layers.discard_statistics(self)
            self._current = None
            self._lock.release()

    def _check_form(self, x: Tensor) -> None:
        """All that can be known without looking at values."""
        if not isinstance(x, Tensor):
            raise InputError(f"A batch must be a torch.Tensor. Got {type(x).__name__} instead; try torch.as_tensor(x).")
        device, dtype = self.placement
        if x.dim() < 2:
            raise InputError(
                f"A batch must have a batch dimension first: (N, 3, H, W) images or (N, P, 3) clouds. Got "
                f"{tuple(x.shape)}; for one sample use x.unsqueeze(0)."
            )
        if x.numel() == 0:
            raise InputError(f"The batch is empty: its shape is {tuple(x.shape)}. Leave empty batches out.")
        if not x.is_floating_point():
            raise InputError(f"A batch must be floating point. Got {x.dtype}; for uint8 images use x.float() / 255.")
        if x.dtype != dtype or x.device != device:
            raise InputError(
                f"The batch is {x.dtype} on {x.device}, the model is {dtype} on {device}. "
                f"Use x.to({str(device)!r}, {dtype})."
            )
        self._view_maker(x)  # refuses what it has no views for

    def _view_maker(self, x: Tensor, kind: ViewKind = "full") -> Views | None:
        """What makes views of this batch, for a method that wants any."""
        draw: Draw | None = getattr(self.config, "draw", None)
        return None if draw is None else self.views or default_views(x, draw, kind)

    def _check_values(self, low: float, high: float) -> None:
        if not (float("-inf") < low <= high < float("inf")):
            raise InputError(
                "The batch holds NaN or infinity. Nothing was learned from it; find out where they come from, or drop "
                "the batch."
            )
        limits = getattr(self._turn.views, "limits", None)
        if limits and (low < limits[0] - RANGE_SLACK or high > limits[1] + RANGE_SLACK):
            raise InputError(
                f"Pixels must lie in [0, 1]. These lie in [{low:.3g}, {high:.3g}], so they look normalised: views of "
                "them would be wrong, silently. Feed raw images and put the normalisation inside the model: "
                "ctta.Normalized(model, mean, std)."
            )

    def _complete(self, step: Step) -> Step:
        """Detach, and add what is known for every method."""
        turn, logits = self._turn, step.logits.detach()
        with torch.no_grad():
            confidence = step.samples.get("confidence", logits.softmax(1).amax(1)).detach()
            counts = {
                "skipped": turn.skipped,
                "forwards": torch.tensor(turn.forwards / len(logits)),
                "backwards": torch.tensor(turn.backwards),
                **({} if turn.idle is None else {"idle": turn.idle.to(torch.int64)}),
                **({} if turn.look is None else {"boundary": turn.look.boundary.to(torch.int64)}),
            }
            info = {"confidence": confidence.mean(), **step.info, **counts}
        samples = {**step.samples, "confidence": confidence}
        return Step(
            logits,
            {key: value.detach() for key, value in info.items()},
            {key: value.detach() for key, value in samples.items()},
        )


def preset_by_input(shape: Sequence[int]) -> str:
    """The settings that fit a batch of this shape: clouds, small images or large ones."""
    if len(shape) == 3:
        return "clouds"
    return "imagenet" if len(shape) == 4 and is_large(*shape[2:]) else "cifar10"


def _own_copy(model: nn.Module) -> nn.Module:
    """A frozen copy in eval mode. Wrappers that hide the network (parallel, compiled) are taken off."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"A model must be a torch.nn.Module. Got {type(model).__name__} instead.")
    while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module) or (
        isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
        and isinstance(inner := model.module, nn.Module)
    ):
        model = inner
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("A scripted model hides its layers. Give the nn.Module it was made from.")
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in model.parameters()):
        raise ModelError("The model has lazy layers without weights. Run one batch through it first.")
    try:
        own = copy.deepcopy(model)
    except Exception as error:
        raise ModelError(
            f"The model cannot be copied ({error}). The adapter needs its own copy. A tensor that is the result of a "
            "computation and kept as an attribute is the usual reason: detach it, or register it as a buffer; with the "
            "old weight_norm, use torch.nn.utils.parametrizations.weight_norm or remove_weight_norm first."
        ) from error
    for parameter in own.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    return own.eval()


def _make_optimizer(parameters: list[nn.Parameter], config: Any) -> torch.optim.Optimizer:
    """Adam or SGD by fused kernels, its state there from the start, so that it never grows."""
    optimizer: torch.optim.Optimizer
    common = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, betas=(0.9, 0.999), **common)
    else:
        optimizer = torch.optim.SGD(parameters, momentum=0.9, nesterov=config.nesterov, **common)
    for parameter in parameters:
        if config.optimizer == "adam":
            count = torch.zeros((), dtype=torch.float32, device=parameter.device)
            moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
            optimizer.state[parameter] = {"step": count, **moments}
        else:
            optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
    return optimizer
