"""The state of an adapter: saved and loaded whole, copied, pickled, and moved between devices."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ctta.base.config import Config
from ctta.base.errors import ConfigError, CttaError, StateError
from ctta.base.fileio import some
from ctta.base.text import failure, quoted
from ctta.core import optim
from ctta.core.drift import Detector
from ctta.core.saving import Savable
from ctta.core.settings import SampleShape
from ctta.core.statistics import OURS, RECENT, STREAM_BUFFERS
from ctta.core.turns import Turns, in_turn
from ctta.core.undo import Before

SAVED = {"method": str, "preset": str, "config": Mapping, "seed": int, "batches": int, "prepared": bool}
DRIFT = "drift."  # where the names of the detector's buffers begin


@contextmanager
def _checking() -> Iterator[None]:
    """What cannot even be looked at, such as a tensor without values, is refused as damaged."""
    try:
        yield
    except CttaError:
        raise
    except Exception as error:
        raise StateError(f"This state is damaged, and nothing was loaded ({failure(error)}).") from error


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of the source model; those of what else a method holds go by its settings, compared later."""
    source = "source_model."
    kept = {name: value for name, value in state.items() if not name.endswith(OURS)}
    return {name: getattr(value, "shape", None) if name.startswith(source) else None for name, value in kept.items()}


class AdapterState(Savable, ABC):
    """What `state_dict()` holds besides tensors: the settings, counters and the optimiser."""

    name: ClassVar[str]  # of the method, in code and configurations
    config_type: ClassVar[type[Config]] = Config  # no settings
    preset: str
    config: Config
    seed: int
    batches: int  # processed so far
    prepared: bool  # whether `prepare` was called
    optimizer: torch.optim.Optimizer | None
    _turns: Turns  # of the threads that use this adapter
    _before: Before  # the state before the current batch
    settings_by_shape: bool  # whether the first batch, or a loaded state, decides on the settings

    @abstractmethod
    def change_settings(self, preset: str, config: Config) -> None:
        """Take other settings, before anything has been learned."""

    @abstractmethod
    def restore_source(self) -> None:
        """Weights, statistics and optimiser go back to the source."""

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
        self.seed, self.batches, self.prepared = state["seed"], state["batches"], state["prepared"]
        if self.optimizer is not None:
            optim.load_state(self.optimizer, state["optimizer"])

    @in_turn
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Go on where the saved adapter was: weights, teacher, optimiser, thresholds, seed and counters."""
        if assign:
            raise StateError("assign=True would leave the optimiser with the old weights. Load without it.")
        self.check_origin(state_dict, strict)
        return super().load_state_dict(state_dict, strict=strict)

    @_checking()
    def check_origin(self, state_dict: Mapping[str, Any], strict: bool) -> None:
        """Refuse the state of another method or another model."""
        saved = state_dict.get("_extra_state") if isinstance(state_dict, Mapping) else None
        method = saved.get("method") if isinstance(saved, Mapping) else None
        if not isinstance(method, str) or method != self.name:
            made_by = f"method {quoted(method)}" if isinstance(method, str) else "something that is not an adapter"
            raise StateError(f"This state was saved by {made_by}; it cannot go on in {self.name!r}.")
        ours, theirs = _shapes(self.state_dict()), _shapes(state_dict)
        if strict and ours != theirs:
            here, there = (any(name.startswith(DRIFT) for name in names) for names in (ours, theirs))
            if here != there:
                raise StateError(
                    "This state was saved with other settings. Make the adapter with "
                    f"boundaries={'detected' if there else 'known'!r} to go on."
                )
            unlike = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
            differ = some(list(map(quoted, unlike)))
            raise StateError(f"This state was saved from another model. Of {len(ours)} entries these differ: {differ}.")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Check the whole state before the first change; then take its settings, and its tensors."""
        saved = state_dict.get(f"{prefix}_extra_state")
        if saved is not None:
            with _checking():
                target = self._fitting(state_dict, prefix, saved)
            self.change_settings(target.preset, target.config)
        for name, own in self.state_dict().items():
            if name.endswith(RECENT):  # a state of an earlier version knows no recent images
                state_dict.setdefault(f"{prefix}{name}", torch.zeros_like(own))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _fitting(self, state_dict: Mapping[str, Any], prefix: str, saved: Any) -> Self:
        """This adapter, or a copy of it with the settings of the state, if all of the state can be loaded into it."""
        for name, kind in SAVED.items():
            if not isinstance(saved, Mapping) or not isinstance(saved.get(name), kind):
                raise StateError(f"This state is damaged: its {name!r} is missing or of another kind.")
        target = self._with_settings(saved["preset"], saved["config"])
        found = {name.removeprefix(prefix): value for name, value in state_dict.items() if name.startswith(prefix)}
        if problem := target._problem(found, saved):
            raise StateError(f"This state is damaged, and nothing was loaded: {problem}.")
        return target

    def _with_settings(self, preset: str, config: Mapping[str, Any]) -> Self:
        """This adapter, or a copy of it with the settings of a state; refused if others were asked for."""
        own = self.config.asdict()
        if config == own:
            return self
        if not self.settings_by_shape:
            changed = [f"{key}={quoted(value)}" for key, value in config.items() if own.get(key) != value]
            raise StateError(
                f"This state was saved with other settings. Make the adapter with {some(changed)} to go on."
            )
        try:
            made = self.config_type.make(config)
        except ConfigError as error:
            raise StateError(f"This state is damaged: {error}") from error
        target = copy.deepcopy(self)
        target.change_settings(preset, made)
        return target

    def _problem(self, found: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
        """What keeps tensors, counters and optimiser of a state from being loaded; empty if nothing does."""
        if saved["batches"] < 0:
            return "its number of batches is negative"
        for name, own in self.state_dict().items():
            if not isinstance(own, Tensor) or name not in found:
                continue
            if problem := optim.problem_of_tensor(found[name], own):
                return f"{name} {problem}"
            if "." not in name and not own.is_floating_point() and (found[name] < 0).any():  # a method's counts
                return f"{name} has negative values"
        drift = {name.removeprefix(DRIFT): value for name, value in found.items() if name.startswith(DRIFT)}
        if problem := Detector.problem(drift):
            return f"{DRIFT}{problem}"
        return "" if self.optimizer is None else optim.problem_of_state(self.optimizer, saved.get("optimizer"))

    @in_turn
    def learned(self) -> dict[str, Tensor]:
        """Copies of all that has been learned, by name: weights and buffers that are no longer the source's."""
        changed = ((name, tensor) for name, tensor in self._changing() if not self._before.untouched(tensor))
        return {name: tensor.detach().clone() for name, tensor in changed}

    @in_turn
    @torch.no_grad()
    def relearn(self, learned: Mapping[str, Tensor]) -> None:
        """Take what `learned` gave; what is not in it stays as it is."""
        for name, tensor in self._changing():
            if name in learned:
                tensor.copy_(learned[name])

    @in_turn
    def stream_state(self) -> dict[str, Any]:
        """Copies of all that this stream has changed; `state_dict()` also holds what is the same for every stream.

        An adapter that was made alike goes on from it, see `set_stream_state`, so that streams can share one.
        """
        if isinstance(self.config, SampleShape):
            raise StateError(
                f"{self.name} keeps what has the shape of samples, so streams cannot share it. Choose another."
            )
        changed = ((name, tensor) for name, tensor in self._along_streams() if not self._before.untouched(tensor))
        return {
            "batches": self.batches,
            "tensors": {name: tensor.detach().clone() for name, tensor in changed},
            "moments": [moment.clone() for moment in self._optimizer_state()],
        }

    @in_turn
    @torch.no_grad()
    def set_stream_state(self, state: Mapping[str, Any]) -> None:
        """Go on with another stream, from what `stream_state` gave; what comes from outside is checked before."""
        self.restore_source()
        kept = state["tensors"]
        pairs = [(own, kept[name]) for name, own in self._along_streams() if name in kept]
        pairs += zip(self._optimizer_state(), state["moments"], strict=True)
        if pairs:
            torch._foreach_copy_([own for own, _ in pairs], [value for _, value in pairs])
        self.batches = state["batches"]

    def check_stream_state(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a stream that is damaged, or that was made with another model or other settings."""
        with _checking():
            kept, own = state["tensors"], dict(self._along_streams())
            buffers = {name for name, _ in self.named_buffers() if name in own and not name.endswith(RECENT)}
            same = type(state["batches"]) is int and state["batches"] >= 0 and buffers <= kept.keys() <= own.keys()
            if not same or len(state["moments"]) != len(self._optimizer_state()):
                raise StateError("This state of a stream was saved by another method, or from another model.")
            found = [(name, kept[name], own[name]) for name in kept]
            found += [("a moment", *pair) for pair in zip(state["moments"], self._optimizer_state(), strict=True)]
            for name, value, mine in found:
                if problem := optim.problem_of_tensor(value, mine):
                    raise StateError(f"This state of a stream is damaged, and nothing was loaded: {name} {problem}.")

    def _optimizer_state(self) -> list[Tensor]:
        return [] if self.optimizer is None else optim.moments(self.optimizer)

    def _along_streams(self) -> Iterator[tuple[str, Tensor]]:
        """The same as `_changing`, and what belongs to a stream but is not taken back with what it has learned."""
        yield from self._changing()
        yield from (pair for pair in self.named_buffers() if pair[0].startswith(DRIFT))
        yield from (pair for pair in self.named_buffers(recurse=False) if pair[0] == "skipped")
        yield from (pair for pair in self.named_buffers() if pair[0].endswith(RECENT))

    def _changing(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors that a method changes along the stream, by name, but for the optimiser's.

        The statistics that the source's weights have followed are among them, because they are compared with.
        """
        frozen = ("source_model.", "source_", "skipped", DRIFT)
        followed = (pair for pair in self.named_buffers() if pair[0].startswith("source_model."))
        yield from (pair for pair in followed if pair[0].endswith(STREAM_BUFFERS))
        yield from ((name, value) for name, value in self.named_parameters() if not name.startswith(frozen))
        own = (pair for pair in self.named_buffers() if not pair[0].startswith(frozen))
        yield from (pair for pair in own if not pair[0].endswith(RECENT))

    def train(self, mode: bool = True) -> Self:
        """Does nothing: modes are the method's business, whoever calls `train()` or `eval()` outside."""
        return self

    def extra_repr(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.config.asdict().items())
        return f"preset={self.preset!r}, {values}, seed={self.seed}, batches={self.batches}"

    @in_turn
    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        with torch.inference_mode(False):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self._before = Before()
            if self.optimizer is not None:
                optim.align_moments(self.optimizer)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with torch.inference_mode(False):
            other = type(self).__new__(type(self))
            memo[id(self)] = other
            other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_turns", "_before")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._turns, self._before = Turns(), Before()
