"""The one abstraction: a model that predicts and adapts, batch by batch.

A method declares `config_type` and `presets`, registers what it changes in `build()`, and does its one duty in
`adapt(x)`. Everything else, the promises that hold for all methods, is here.
"""

from __future__ import annotations

import itertools
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ctta.base.config import Config
from ctta.base.errors import ConfigError, InputError, ModelError, StateError
from ctta.core import networks, optim, settings
from ctta.core import statistics as norms
from ctta.core.device import resolve
from ctta.core.drift import Detector, Inspection
from ctta.core.execution import Execution
from ctta.core.export import frozen_copy
from ctta.core.forward import Forward
from ctta.core.inputs import check_logits, own_copy
from ctta.core.processing import Processing
from ctta.core.processing import Step as Step
from ctta.core.settings import AUTO, PAPER, Normalization, Presets, SampleShape, Traits
from ctta.core.turns import Turns, adapts_in_turn, in_turn
from ctta.core.undo import all_finite
from ctta.core.views import Views

log = logging.getLogger("ctta")


class Adapter(Processing):
    """Wraps a classifier: `logits = adapter(x)` predicts, then adapts.

    Everything that changes over the stream lives in a submodule, a buffer or `self.optimizer`.

    model       any `nn.Module` that maps (N, ...) to (N, C) logits; the adapter works on its own copy
    config      a whole configuration; without one, the preset decides
    preset      a name from `presets`, as published; a variant, whose preset goes by the shape of the first batch:
                "paper" (as published) or "auto" (the default: BatchNorm statistics follow the batch only as far as is
                safe); or both: "cifar100+fast"
    seed        all randomness is a function of (seed, batch number)
    classes     C, if it cannot be read off the model's last linear layer
    views       how many augmented views (the field of that name), or an object that makes them, see `ctta.views.Views`
    execution   device, precision, memory layout and compilation of all passes, see `ctta.Execution`
    boundaries  "known" to whoever calls `begin_domain`, or "detected" from the inputs, see `core.drift`
    inputs      "auto": pixels of images, (N, 3, H, W) or (N, 1, H, W), must lie in [0, 1]; "any": all finite values are
                right, for a model that wants something else
    fields      single fields of the configuration, over preset or config
    """

    title: ClassVar[str]  # in tables; it and `name` follow the name of the class if they are not given
    presets: ClassVar[Presets] = settings.same_presets()
    traits: ClassVar[Traits] = Traits("nothing", forwards=(1, 1), backwards=(0, 0))
    variants: ClassVar[Presets] = {PAPER: {}, AUTO: {"statistics": "auto"}}  # settings over any preset
    needs_norm: ClassVar[bool] = False  # whether a model without a norm layer makes no sense for this method
    paced: ClassVar[bool] = False  # whether it learns less from small batches, or of few classes, without a guard
    whole_batches: ClassVar[bool] = True  # whether networks see whole batches, or samples that the method has chosen

    drift: Detector | None
    skipped: Tensor

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.name = vars(cls).get("name", cls.__name__.lower())  # a variant of a method is another method
        cls.title = vars(cls).get("title", cls.__name__)
        if cls.adapt is not Adapter.adapt and not issubclass(cls.config_type, Normalization):
            cls.variants = {name: fields for name, fields in cls.variants.items() if name != AUTO}

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
        boundaries: Literal["known", "detected"] = "known",
        inputs: Literal["auto", "any"] = "auto",
        **fields: Any,
    ) -> None:
        super().__init__()
        if boundaries not in ("known", "detected"):
            former = " 'told' is now called 'known'." if str(boundaries) == "told" else ""
            raise ConfigError(f"boundaries must be 'known' or 'detected'. Got {boundaries!r} instead.{former}")
        if inputs not in ("auto", "any"):
            raise ConfigError(f"inputs must be 'auto' or 'any'. Got {inputs!r} instead.")
        if isinstance(views, int):
            fields["views"], views = views, None
        self.views, self.inputs, self.seed, self.execution = views, inputs, seed, execution or Execution()
        self.batches, self.prepared = 0, False
        self._asked, self._fields = preset, fields
        if preset is None and not fields.keys().isdisjoint(Normalization.fields()):
            self._asked = PAPER  # whoever says which statistics wants nothing else changed
        self._whole = config
        self.settings_by_shape = config is None and (preset is None or preset in self.variants)
        if issubclass(self.config_type, SampleShape) and getattr(config, "sample", fields.get("sample")) is None:
            self.settings_by_shape = True
        self._turns = Turns()
        self._warned: set[str] = set()
        self._current = None
        chosen = self.settings_for(settings.ASSUMED_SHAPE)
        with torch.inference_mode(False):
            self.source_model = own_copy(model)
            if self.execution.device is not None:
                self.source_model.to(resolve(self.execution.device))
            self.classes = classes or networks.class_count(self.source_model) or 0
            self._check_model()
            networks.clear_caches_before_passes(self.source_model)
            device, _ = self.placement
            self.execution = self.execution.on(device)
            self.register_buffer("skipped", torch.zeros((), dtype=torch.int64, device=device))
            self.drift = Detector(device) if boundaries == "detected" else None
            self._settle(*chosen)
        if not self.settings_by_shape:
            self.review()

    # What a method fills in.

    def build(self) -> None:
        """Register networks (`copy_source`), buffers and the optimiser (`train_on`)."""

    def review(self) -> None:
        """Log what is odd about the settings, once they are known."""

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        """Compute what `adapt` decides on in Python, before anything changes; `adapt` finds it in `self.observed`.

        0-d tensors are read on the host, together with what is checked of the batch, in its one synchronisation.
        """
        return {}

    @abstractmethod
    def adapt(self, x: Tensor) -> Step:
        """The method's one duty: predict, then learn. Grad mode and randomness are set; x is a valid batch."""

    @property
    def network(self) -> nn.Module:
        """The network that predicts: the first copy of the source, or the source itself if there is none."""
        return self._networks[0] if self._networks else self.source_model

    def logits(self, x: Tensor) -> Tensor:
        """The prediction with the weights as they are now. Changes nothing."""
        return self.run(self.network, x)

    def finish(self, network: nn.Module, x: Tensor | None) -> nn.Module:
        """A frozen copy of `network`, with what `logits` does besides; a method that overrides that one, does this too.

        x is the batch whose statistics are frozen.
        """
        if type(self).logits is not Adapter.logits:
            raise StateError(
                f"{type(self).__name__} predicts with more than a network: with augmented views, or with the other "
                "samples of a batch. So no network answers as it does; adapter.network is the one that it uses."
            )
        return network

    def correct(self, logits: Tensor) -> Tensor:
        """A batch's prediction, corrected by what its samples have in common; a guard does so after its own choice."""
        return logits

    def with_correction(self, network: nn.Module) -> nn.Module:
        """The network with `correct` after it, as it is now."""
        return network

    def begin_domain(self) -> None:
        """A hint that the stream has moved to another domain, before its first batch; the caller decides to give it."""

    @classmethod
    def source_for(cls, fields: Mapping[str, Any]) -> str:
        """What `prepare` keeps of the source data with these settings: what the traits say, unless one changes it."""
        return cls.traits.source

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take what is needed from source data, (x, y) batches; passes go through `run` as in `adapt`.

        What is found goes into buffers called `source_...`, which no reset touches.
        """

    # What a user calls.

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x).logits

    @adapts_in_turn
    def step(
        self,
        x: Tensor,
        *,
        reference: bool = False,
        source: bool = False,
        corrected: bool = True,
        then: Callable[[Step], Step] | None = None,
    ) -> Step:
        """Predict, adapt, and report what happened; if asked for, with `reference` and `source` of the same batch.

        `corrected=False` leaves out what `correct` does to the prediction; so it does in `predict` and `export`. What
        `then` makes of the step is returned; if it fails, the batch has failed, and all state is as it was before.
        """
        if not self.prepared and self.source_for(self.config.asdict()) != "none":
            raise StateError(
                f"{type(self).__name__} needs source data once before the stream: "
                "adapter.prepare((x, y) for x, y in source_batches)."
            )
        with self._scope(x) as x, self.all_or_nothing():
            if self.batches == 0:
                self._follow_shape(x)
            self._compare(x)
            seen = None if self.drift is None else self.drift.inspect(x)
            if self._read(x, self.observe(x), seen):
                self.begin_domain()
            step = self._sound_step(x)
            if self.drift is not None and seen is not None:
                self.drift.accept(seen)
            self.skipped += self._batch.skipped
            self.batches += 1
            expected = self._reference_logits(x, follow=True) if reference else None
            same = expected if norms.keeps_source(self.source_model) else None
            own = None if not source else self._source_logits(x) if same is None else same
            check_logits(*(logits for logits in (expected, own) if logits is not None))
            if reference:
                self._commit_reference()
            step = replace(self._complete(step, seen), reference=expected, source=own)
            step = replace(step, logits=self.correct(step.logits)) if corrected else step
            return step if then is None else then(step)

    @in_turn
    def predict(self, x: Tensor, *, corrected: bool = True) -> Tensor:
        """The prediction with the current weights. Nothing is learned, no state changes."""
        with self.passing(x) as x:
            logits = self.logits(x)
            check_logits(logits)
            return self.correct(logits) if corrected else logits

    @in_turn
    def source(self, x: Tensor) -> Tensor:
        """The prediction of the unadapted model, with the source's own statistics."""
        with self._scope(x) as x:
            self._read(x)
            logits = self._source_logits(x)
            check_logits(logits)
            return logits

    @in_turn
    def reference(self, x: Tensor, *, follow: bool = False) -> Tensor:
        """The prediction of the source's weights under the statistics that the method works with.

        `follow`: statistics that follow the stream take in this batch; else nothing changes.
        """
        with self.passing(x) as x:
            logits = self._reference_logits(x, follow=follow)
            check_logits(logits)
            if follow:
                self._commit_reference()
            return logits

    def _reference_logits(self, x: Tensor, *, follow: bool) -> Tensor:
        if follow and not self.whole_batches:  # they follow the samples that the method has chosen
            norms.take_averages(self.source_model, self.network)
        return self.expected(x)

    def _commit_reference(self) -> None:
        """Let statistics of the reference that follow the stream take in what it has seen."""
        if self.whole_batches and self._networks:  # without any, it is what predicts, and has followed
            self._commit(self.source_model)

    @adapts_in_turn
    def prepare(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Show the method source data, (x, y) batches, before the stream; what it keeps is part of the state.

        Methods that need none do not read it.
        """
        if self.source_for(self.config.asdict()) == "none":
            return
        if self.batches:
            raise StateError("The stream has begun; source data come before it. Call reset(), then prepare(source).")
        batches = iter(source)
        first = next(batches, None)
        with self.all_or_nothing():
            if first is not None:
                with self._scope(first[0]) as x:
                    self._follow_shape(x)
            self.study(self._checked(itertools.chain([] if first is None else [first], batches)))
            if not all(all_finite(self._before.changed())):
                raise InputError(
                    f"What {type(self).__name__} took from the source data is not finite: the model's prediction for a "
                    "batch is not, or its gradient. Nothing was kept; give other images."
                )
            self.prepared = True

    @in_turn
    def restore_source(self) -> None:
        """Weights, statistics and optimiser go back to the source; counters and what the method has learned go on."""
        norms.restart_statistics(self.source_model)
        if norms.is_auto(self.source_model):
            self.stream_recent.zero_()
        for network in self._networks:
            pairs = zip(network.parameters(), self.source_model.parameters(), strict=True)
            moved = [(own, source) for own, source in pairs if not self._before.untouched(own)]
            networks.overwrite((own for own, _ in moved), (source for _, source in moved))
            networks.overwrite(network.buffers(), self.source_model.buffers())
        if self.optimizer is not None:
            optim.clear_moments(self.optimizer)

    @in_turn
    def reset(self) -> None:
        """Everything goes back to the start: the same stream gives the same predictions again."""
        self.restore_source()
        networks.overwrite(self._own_tensors(), self._initial)
        self.batches = 0
        if self.settings_by_shape and not self.prepared:
            self.change_settings(*self.settings_for(settings.ASSUMED_SHAPE))

    @in_turn
    def export(self, x: Tensor | None = None, *, corrected: bool = True) -> nn.Module:
        """A copy of the network that predicts, in eval mode: a plain module with frozen statistics, for deployment.

        Its BatchNorm layers normalise with the statistics with which `predict(x)` does, so both answer alike on that
        batch. Without a batch they take the average along the stream ("running") or the source's; statistics that
        follow each batch need one. Precision, layout and compilation are the model's own, as it was given.
        """
        network = self.finish(frozen_copy(self, self.network, x), x)
        return self.with_correction(network) if corrected else network

    def made(self) -> dict[str, Any]:
        return {
            "by_shape": (self._asked, self._fields) if self.settings_by_shape and self._whole is None else None,
            "classes": self.classes,
            "inputs": self.inputs,
            "boundaries": "known" if self.drift is None else "detected",
            "execution": self.execution.asdict(),
            "views": self.views is not None,
            "every": None,
        }

    # Settings: known at construction, from a loaded state, or from the shape of the first batch.

    @classmethod
    def preset_name(cls, asked: str | None, shape: Sequence[int]) -> str:
        """The preset in full, "cifar10" or "cifar10+fast"; only a variant, or none, goes by the shape of the batch."""
        return settings.preset_name(asked, cls.variants, shape)

    @classmethod
    def preset_fields(cls, name: str) -> dict[str, Any]:
        """The fields that a preset sets."""
        return settings.preset_fields(name, cls.presets, cls.variants, cls.__name__)

    def _given(self, config: Config) -> tuple[str, Config]:
        if not isinstance(config, self.config_type):
            raise ConfigError(
                f"{type(self).__name__} takes a {self.config_type.__name__}. Got {type(config).__name__} instead."
            )
        if self._asked is not None:
            raise ConfigError("Give a config or a preset, not both: a config is complete.")
        return "own", config.replace(**self._fields)

    def settings_for(self, shape: Sequence[int]) -> tuple[str, Config]:
        """The preset for batches of this shape, and its settings."""
        if self._whole is not None:
            name, config = self._given(self._whole)
        else:
            name = self.preset_name(self._asked, shape)
            config = self.config_type.make({**self.preset_fields(name), **self._fields})
        if isinstance(config, SampleShape) and config.sample is None:
            config = config.replace(sample=tuple(shape[1:]))
        return name, config

    def _settle(self, preset: str, config: Config) -> None:
        """Take these settings: the one place in which networks, buffers and the optimiser are made."""
        self.preset, self.config = preset, config
        self.optimizer = None
        self._networks: list[nn.Module] = []
        self._forward = Forward(self.execution, self.classes)
        weight = config.batch_weight if isinstance(config, Normalization) else 1.0
        norms.install_statistics(self.source_model, self.statistics, weight)
        if norms.is_auto(self.source_model):
            device, dtype = self.placement
            self.register_buffer(norms.RECENT, torch.zeros(2 + self.classes, device=device, dtype=dtype))
        else:
            self._buffers.pop(norms.RECENT, None)
        self.build()
        self._initial = [tensor.clone() for tensor in self._own_tensors()]
        self._share_with_source()

    def change_settings(self, preset: str, config: Config) -> None:
        """Take other settings, before anything has been learned."""
        if (preset, config) != (self.preset, self.config):
            with torch.inference_mode(False):
                self._settle(preset, config)

    def _follow_shape(self, x: Tensor) -> None:
        """Without a named preset, the first batch decides: point clouds, small or large images."""
        if self.settings_by_shape and not self.prepared:
            self.change_settings(*self.settings_for(x.shape))
            self._keep()
            shape = tuple(x.shape[1:])
            log.info("%s: settings of preset %r, by input %s: %s", self.name, self.preset, shape, self.config)
            self.review()

    # The inner workings.

    def _checked(self, source: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each batch of source data, checked, in a scope of its own."""
        for x, y in source:
            with self._scope(x) as checked:
                self._read(checked)
                self._compare(checked)
                yield checked, y

    def _check_model(self) -> None:
        if self.classes < 1:
            raise ModelError(
                "The number of classes could not be read off the model: it has no linear layer and no 1x1 "
                "convolution. Give it: classes=10."
            )
        if self.classes == 1:
            raise ModelError(
                "The model gives one logit per sample, so every sample would be of the same class. Give both classes' "
                "logits: a last layer with two outputs, weight torch.cat([-w, w]) / 2 and bias torch.cat([-b, b]) / 2. "
                "If the model gives more logits than its last linear layer has, say how many: classes=10."
            )
        if self.needs_norm and not networks.norm_layers(self.source_model):
            raise ModelError(
                f"{type(self).__name__} adapts norm layers and this model has none (BatchNorm, LayerNorm, "
                "GroupNorm, InstanceNorm, RMSNorm). Use a method that trains all parameters, such as 'cotta' or "
                "'dss', or give it a model with norm layers."
            )

    def _own_tensors(self) -> list[Tensor]:
        """State that is no network and changes along the stream: what the method registered itself."""
        own = [buffer for name, buffer in self.named_buffers(recurse=False) if not name.startswith("source_")]
        return own if self.drift is None else [*own, *self.drift.buffers()]

    def _complete(self, step: Step, drift: Inspection | None) -> Step:
        """Detach, and add what is known for every method."""
        batch, logits = self._batch, step.logits.detach()
        with torch.no_grad():
            confidence = step.samples.get("confidence", logits.softmax(1).amax(1)).detach()
            counts = {
                "skipped": torch.tensor(int(batch.skipped)),
                "forwards": torch.tensor(batch.forwards / len(logits)),
                "backwards": torch.tensor(batch.backwards),
                **({} if batch.idle is None else {"idle": batch.idle.to(torch.int64)}),
                **({"restored": torch.tensor(1)} if batch.restored else {}),
                **({} if drift is None else {"boundary": drift.boundary.to(torch.int64)}),
                **({} if (doubt := norms.doubt(self.source_model)) is None else {"doubt": doubt}),
            }
            info = {"confidence": confidence.mean(), **step.info, **counts}
        samples = {**step.samples, "confidence": confidence}
        return Step(
            logits,
            {key: value.detach() for key, value in info.items()},
            {key: value.detach() for key, value in samples.items()},
        )
