"""What a guard remembers of its stream: saved and loaded whole with its adapter, and as it was if a batch fails."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from torch import Tensor

from ctta.base.errors import ConfigError, StateError
from ctta.core import health, optim
from ctta.core import probe as probes
from ctta.core.adapter import Adapter
from ctta.core.saving import Savable
from ctta.core.turns import in_turn

log = logging.getLogger("ctta")

TRIAL = 256  # samples that are compared at first, before the adapter's answers are given


@dataclass(frozen=True)
class Event:
    """Something that the guard did or wants to tell."""

    batch: int
    kind: Literal["roll-back", "frozen", "lost", "changed", "blank"]
    words: str

    @property
    def alarming(self) -> bool:
        """Whether something is wrong with the model, rather than only with the samples."""
        return self.kind not in ("changed", "blank")


@dataclass(frozen=True)
class GuardState:
    """What the guard remembers, besides its snapshots."""

    evidence: float = 0.0  # of harm, see `health`
    narrowing: float = 0.0  # of the answers, see `health`
    since: int = 0  # the batch at which the evidence was last 0
    rung: int = -1  # of the last alarm
    alarm: int = -1  # its batch
    calm_until: int = 0
    frozen: bool = False
    trial: int = TRIAL  # samples that are still to be compared before the adapter answers
    doubt: float = 0.0  # that the domain has shifted, as far as auto statistics say
    heard: float = 0.0  # the weight of the unadapted model in the answer, see `health`
    confidence: float = 1.0  # of the reference, an average over batches
    breadth: float = 1.0  # the share of the classes that the last batch held, if BatchNorm does not see to that
    lost: bool = False
    blank: int = 0  # samples that have shown nothing
    probed: int = 0  # the batch before which the clean samples were last known


@dataclass(frozen=True)
class Snapshot:
    """What an adapter had learned after so many batches, by name."""

    batch: int
    learned: Mapping[str, Tensor]


class GuardMemory(Savable):
    """The part of a guard that holds its adapter and what it remembers."""

    def __init__(self, adapter: Adapter, *, every: int = 3, on_event: Callable[[Event], None] | None = None) -> None:
        super().__init__()
        if not isinstance(adapter, Adapter):
            raise ConfigError(f"A guard is made around an adapter. Got {type(adapter).__name__} instead.")
        if every < 1:
            raise ConfigError(f"every must be at least 1. Got {every} instead.")
        self.adapter, self.every, self.on_event = adapter, every, on_event
        self.probe: probes.Probe | None = None
        self._begin()

    def _begin(self) -> None:
        """Nothing of the stream is known; clean samples belong to every stream."""
        self.state, self.snapshots, self.events = GuardState(), list[Snapshot](), list[Event]()
        self.means: health.Means | None = None
        self.standing: health.Standing | None = None
        self.bet = probes.Bet()

    def __getattr__(self, name: str) -> Any:
        """What the guard does not have itself is the adapter's: its name, seed, settings, device."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # copying a guard must not give a copy of its adapter
                raise
            return getattr(super().__getattr__("adapter"), name)

    def made(self) -> dict[str, Any]:
        return {**self.adapter.made(), "every": self.every}

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """If the block fails or is interrupted, the guard is as it was before; else what it found is told."""
        names = ("state", "snapshots", "means", "standing", "bet", "events")
        before = {name: getattr(self, name) for name in names}
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise
        known = {id(event) for event in before["events"]}
        for event in self.events:
            if id(event) not in known:
                self._tell(event)

    def _note(self, event: Event) -> None:
        self.events = [*self.events[-99:], event]

    def _tell(self, event: Event) -> None:
        """The batch is over by then, so whoever is told cannot undo it."""
        log.warning("guard of %s, batch %d: %s", self.adapter.name, event.batch, event.words)
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                log.exception("guard of %s: on_event failed. The prediction and the guard are not affected.", self.name)

    @in_turn
    def stream_state(self) -> dict[str, Any]:
        """Copies of all that this stream has changed, see `Adapter.stream_state`; clean samples are of every stream."""
        return {**self.get_extra_state(), "probe": None, "adapter": self.adapter.stream_state()}

    @in_turn
    def set_stream_state(self, state: Mapping[str, Any]) -> None:
        """Go on with another stream, see `Adapter.set_stream_state`."""
        self.adapter.set_stream_state(state["adapter"])
        self.set_extra_state({**state, "probe": None if self.probe is None else vars(self.probe)})
        self.events = []

    def check_stream_state(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a stream that is damaged, or that was made with another model or other settings."""
        if problem := self._problem(state):
            raise StateError(f"This state of a stream is damaged, and nothing was loaded: {problem}.")
        self.adapter.check_stream_state(state["adapter"])

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "state": asdict(self.state),
            "snapshots": [{"batch": one.batch, "learned": dict(one.learned)} for one in self.snapshots],
            "probe": None if self.probe is None else dict(vars(self.probe)),
            "bet": asdict(self.bet),
            "means": None if self.means is None else dict(vars(self.means)),
            "standing": None if self.standing is None else dict(vars(self.standing)),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.state = GuardState(**state["state"])
        self.snapshots = [Snapshot(one["batch"], dict(one["learned"])) for one in state["snapshots"]]
        self.probe = None if state["probe"] is None else probes.Probe(**state["probe"])
        self.bet = probes.Bet(**state["bet"])
        self.means = None if state["means"] is None else health.Means(**state["means"])
        self.standing = None if state["standing"] is None else health.Standing(**state["standing"])

    @in_turn
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Go on where the saved guard was, with its adapter; all or nothing."""
        saved = state_dict.get("_extra_state")
        if not isinstance(saved, Mapping) or "snapshots" not in saved:
            raise StateError("This state was not saved by a guard. Load it into the adapter before the guard is made.")
        inner = OrderedDict(
            (name.removeprefix("adapter."), value) for name, value in state_dict.items() if name != "_extra_state"
        )
        versions = getattr(state_dict, "_metadata", {})  # of modules, by which they read what older ones wrote
        inner._metadata = {  # type: ignore[attr-defined]
            name.removeprefix("adapter").removeprefix("."): value for name, value in versions.items() if name
        }
        self.adapter.check_origin(inner, strict)
        if problem := self._problem(saved):
            raise StateError(f"This state is damaged, and nothing was loaded: {problem}.")
        result = self.adapter.load_state_dict(inner, strict=strict, assign=assign)
        self.set_extra_state(saved)
        return result

    def _problem(self, saved: Mapping[str, Any]) -> str:
        """What keeps a state from being that of a guard around such an adapter; empty if nothing does."""
        kinds = {one.name: type(one.default) for one in fields(GuardState)}
        state, snapshots, own = saved.get("state"), saved.get("snapshots"), self.adapter.state_dict()
        if not isinstance(state, Mapping) or {name: type(value) for name, value in state.items()} != kinds:
            return "what the guard remembers is of another kind"
        for one in snapshots if isinstance(snapshots, list) else [snapshots]:
            learned = one.get("learned") if isinstance(one, Mapping) and type(one.get("batch")) is int else None
            if not isinstance(learned, Mapping):
                return "a snapshot of the guard is of another kind"
            for name, value in learned.items():
                problem = optim.problem_of_tensor(value, own[name]) if name in own else "is not in the adapter"
                if problem:
                    return f"{name} in a snapshot {problem}"
        classes = self.adapter.classes
        averages = (("means", health.Means.uniform(classes)), ("standing", health.Standing.start(classes)))
        for name, like in averages:
            if problem := health.problem_of_averages(saved.get(name, ()), like):
                return problem
        return probes.problem(saved.get("probe"), saved.get("bet"), self.adapter.classes)
