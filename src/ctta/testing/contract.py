"""The contract: what every method must honour, as a list of checks.

Each check takes a `Case`, one method on one network, and raises an AssertionError that says what does not hold.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ctta.base.errors import CttaError, InputError, ModelError
from ctta.core import networks, optim
from ctta.core.adapter import Adapter, Step
from ctta.testing.device import pretended, waits
from ctta.testing.networks import CLASSES, make_network, make_stream

# Settings that make hidden state visible: large steps, a fast teacher, augmentations and memories in use, samples
# selected, resets. Each one is given to the methods that have a field of this name.
LIVELY: Mapping[str, Any] = {
    "lr": 0.02,
    "ema": 0.5,
    "restore": 0.05,
    "views": 2,
    "augmentation_threshold": 1.0,
    "queue": 24,
    "refine_after": 16,
    "margin": 0.9,
    "similarity": 0.95,
    "plpd": -1.0,
    "memory": 12,
    "every": 8,
    "head_steps": 3,
    "steps": 2,
    "masks": 2,
    "reset_every": 4,
}


@dataclass(frozen=True)
class Case:
    """One method on one network of `NETWORKS`; `arguments` are passed on to the method."""

    method: type[Adapter]
    network: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def model(self) -> nn.Module:
        return make_network(self.network)

    def adapter(self, *, seed: int = 0, model: nn.Module | None = None, **fields: Any) -> Adapter:
        """A new adapter with lively settings, prepared with source data."""
        settings = {key: value for key, value in LIVELY.items() if self.has(key)}
        adapter = self.method(model or self.model(), seed=seed, **{**settings, **self.arguments, **fields})
        device = adapter.placement[0]
        source = make_stream(self.network, 2)
        adapter.prepare((x.to(device), (torch.arange(len(x)) % CLASSES).to(device)) for x in source)
        return adapter

    def stream(self, batches: int = 6) -> list[Tensor]:
        """Batches for the network; a method that takes samples one by one gets the first of each."""
        few = 1 if self.method.traits.episodic else None
        return [x[:few] for x in make_stream(self.network, batches)]

    def has(self, setting: str) -> bool:
        """Whether the method has a setting of this name."""
        return setting in self.method.config_type.fields()

    @property
    def learns(self) -> bool:
        return self.adapter().optimizer is not None


def predictions(adapter: Adapter, stream: Iterable[Tensor]) -> list[Tensor]:
    return [adapter(x) for x in stream]


def flat_state(value: Any) -> list[Any]:
    """Everything in a state dict, as a flat list of clones and plain values."""
    if isinstance(value, Tensor):
        return [value.detach().clone()]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in [key, *flat_state(value[key])]]
    if isinstance(value, list | tuple):
        return [leaf for entry in value for leaf in flat_state(entry)]
    return [value]


def same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two lists of tensors and plain values are equal."""
    return len(left) == len(right) and all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(left, right, strict=True)
    )


def check_predictions(case: Case) -> None:
    """Logits are (N, C), detached, finite and of the model's dtype; `info` is 0-d and `samples` are (N,)."""
    adapter = case.adapter()
    for x in case.stream():  # the last batch is smaller than the others
        step = adapter.step(x)
        assert isinstance(step, Step), f"step() returned {type(step).__name__} instead of a Step"
        shape = tuple(step.logits.shape)
        assert shape == (len(x), CLASSES), f"the logits have shape {shape} instead of {(len(x), CLASSES)}"
        assert not step.logits.requires_grad, "the logits are not detached"
        assert step.logits.isfinite().all(), "the logits are not finite"
        assert step.logits.dtype == x.dtype, f"the logits are {step.logits.dtype} instead of {x.dtype}"
        missing = [name for name in ("confidence", "skipped", "forwards", "backwards") if name not in step.info]
        assert not missing, f"info has no {missing}"
        for name, value in step.info.items():
            assert value.dim() == 0, f"info[{name!r}] is not 0-d"
            assert not value.requires_grad, f"info[{name!r}] is not detached"
        assert "confidence" in step.samples, "samples has no 'confidence'"
        for name, value in step.samples.items():
            assert value.shape == (len(x),), f"samples[{name!r}] has shape {tuple(value.shape)} instead of {(len(x),)}"
    assert adapter.batches == 6, f"{adapter.batches} batches were counted instead of 6"


def check_traits(case: Case) -> None:
    """The traits say truly whether it learns, and whether it needs source data."""
    learns, words = case.learns, case.method.traits.learns
    assert learns == (words != "nothing"), (
        f"traits.learns is {words!r}, and it has {'an' if learns else 'no'} optimiser"
    )


def check_leaves_the_caller_alone(case: Case) -> None:
    """The model, the input, the global generator, the grad mode, threads and default dtype stay as they were."""
    model = case.model()
    before = flat_state(model.state_dict())
    modes = [module.training for module in model.modules()]
    wants = [parameter.requires_grad for parameter in model.parameters()]
    stream = case.stream()
    inputs = [x.clone() for x in stream]
    generator, threads, dtype = torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()
    adapter = case.adapter(model=model)
    predictions(adapter, stream)
    adapter.predict(stream[0])
    adapter.source(stream[0])
    assert same(before, flat_state(model.state_dict())), "the caller's model has other weights"
    assert modes == [module.training for module in model.modules()], "the caller's model is in another mode"
    assert wants == [p.requires_grad for p in model.parameters()], "the caller's model has another requires_grad"
    assert all(parameter.grad is None for parameter in model.parameters()), "the caller's model has gradients"
    assert same(inputs, stream), "the input was changed"
    assert torch.equal(generator, torch.get_rng_state()), "the global random generator was used"
    assert torch.is_grad_enabled(), "the grad mode was changed"
    assert threads == torch.get_num_threads(), "the number of threads was changed"
    assert dtype == torch.get_default_dtype(), "the default dtype was changed"


def check_seeding(case: Case) -> None:
    """One seed gives the same predictions whatever the global generator does; another seed gives others."""
    stream = case.stream()
    first = predictions(case.adapter(seed=3), stream)
    torch.manual_seed(123)
    again = predictions(case.adapter(seed=3), stream)
    assert same(first, again), "the same seed gave other predictions"
    if case.has("draw") or case.has("restore"):
        assert not same(first, predictions(case.adapter(seed=4), stream)), "another seed gave the same predictions"


def check_reset_replays(case: Case) -> None:
    """After reset() the whole state is as it was made, and the same stream gives the same predictions."""
    adapter, stream = case.adapter(), case.stream()
    fresh = flat_state(adapter.state_dict())
    first = predictions(adapter, stream)
    if case.learns:
        assert not same(fresh, flat_state(adapter.state_dict())), "the stream did not change the state"
        assert not same(first, predictions(adapter, stream)), "the state does not change the predictions"
    adapter.begin_domain()
    adapter.reset()
    assert same(fresh, flat_state(adapter.state_dict())), "after reset() the state is another"
    assert same(first, predictions(adapter, stream)), "after reset() the predictions are others"


def check_restore_source(case: Case) -> None:
    """restore_source() puts every network and the optimiser back to the source; counters go on."""
    adapter, fresh, stream = case.adapter(), case.adapter(), case.stream()
    fresh.change_settings(*fresh.settings_for(stream[0].shape))
    predictions(adapter, stream)
    adapter.restore_source()
    assert adapter.batches == len(stream), "restore_source() changed the number of batches"
    assert same(list(fresh.parameters()), list(adapter.parameters())), "restore_source() left other weights"
    for network, source in zip(adapter.children(), fresh.children(), strict=True):
        if list(network.parameters()):
            assert same(list(source.buffers()), list(network.buffers())), "restore_source() left other statistics"
    moments = [] if adapter.optimizer is None else optim.moments(adapter.optimizer)
    assert not any(value.any() for value in moments), "restore_source() left the optimiser's state"


def check_save_and_load(case: Case) -> None:
    """A state saved anywhere and loaded with weights_only=True into a new adapter continues the stream exactly."""
    stream = case.stream()
    for cut in (0, 2):
        adapter = case.adapter(seed=5)
        predictions(adapter, stream[:cut])
        adapter.begin_domain()
        buffer = io.BytesIO()
        torch.save(adapter.state_dict(), buffer)
        rest = predictions(adapter, stream[cut:])
        buffer.seek(0)
        other = case.adapter(seed=0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert other.batches == cut, f"after loading, {other.batches} batches were counted instead of {cut}"
        assert same(rest, predictions(other, stream[cut:])), f"saved after {cut} batches, it does not go on exactly"


def check_bounded_state(case: Case) -> None:
    """After 30 batches the adapter is as large as after the first one."""
    fields: dict[str, Any] = {"views": 1} if case.has("views") else {}
    adapter, stream = case.adapter(**fields), [x[:4] for x in case.stream(4)]
    adapter(stream[0])
    start = len(pickle.dumps(adapter))
    for number in range(1, 30):
        adapter(stream[number % 4])
    end = len(pickle.dumps(adapter))
    assert end == start, f"the adapter grew from {start} to {end} bytes"


def check_keeps_no_graph(case: Case) -> None:
    """After a batch no tensor with a graph is alive, and no gradient is kept."""
    adapter, stream, frozen = case.adapter(), case.stream(), gc.get_freeze_count()
    gc.freeze()  # so that only what the batches leave behind is inspected
    try:
        kept = [adapter.step(x) for x in stream]
        gc.collect()
        alive = [value for value in gc.get_objects() if issubclass(type(value), Tensor)]
    finally:
        if not frozen:  # else it is the caller who wants it so
            gc.unfreeze()
    assert len(kept) == len(stream)
    assert not [value for value in alive if value.grad_fn is not None], "a tensor with its graph is alive"
    assert all(parameter.grad is None for parameter in adapter.parameters()), "gradients are kept"


def check_predict_changes_nothing(case: Case) -> None:
    """predict() and source() between batches change neither the state nor later predictions."""
    stream = case.stream()
    expected = predictions(case.adapter(), stream)
    adapter = case.adapter()
    found = []
    for x in stream:
        before = flat_state(adapter.state_dict())
        once, twice = adapter.predict(x), adapter.predict(x)
        adapter.source(stream[0])
        assert same(before, flat_state(adapter.state_dict())), "predict() or source() changed the state"
        assert torch.equal(once, twice), "predict() gave two predictions for one batch"
        found.append(adapter(x))
    assert same(expected, found), "predict() or source() changed later predictions"


def check_source_is_the_model(case: Case) -> None:
    """source(x) is the prediction of the caller's model in eval mode, at any point of the stream."""
    model, stream = case.model(), case.stream()
    adapter = case.adapter(model=model)
    model.eval()
    for x in stream:
        with torch.no_grad():
            expected = model(x)
        assert torch.allclose(adapter.source(x), expected, atol=1e-5), "source(x) is not the model's prediction"
        adapter(x)


def check_modes_are_inert(case: Case) -> None:
    """train(), eval(), no_grad and inference_mode around the adapter change nothing."""
    stream = case.stream(3)
    expected = predictions(case.adapter(), stream)

    ways: dict[str, tuple[Callable[[], AbstractContextManager[Any]], bool | None]] = {
        "train()": (nullcontext, True),
        "eval()": (nullcontext, False),
        "no_grad": (torch.no_grad, None),
        "inference_mode": (torch.inference_mode, None),
    }
    for word, (context, mode) in ways.items():
        adapter, found = case.adapter(), []
        for x in stream:
            if mode is not None:
                nn.Sequential(adapter).train(mode)
            with context():
                found.append(adapter(x + 0))  # under inference_mode this makes an inference tensor
        assert same(expected, found), f"{word} changes the predictions"


def check_copies(case: Case) -> None:
    """Pickled and deep-copied adapters continue exactly and are independent of the original."""
    stream = case.stream()
    ways: dict[str, Callable[[Adapter], Adapter]] = {
        "deepcopy": copy.deepcopy,
        "pickle": lambda adapter: pickle.loads(pickle.dumps(adapter)),
    }
    for word, duplicate in ways.items():
        adapter = case.adapter()
        predictions(adapter, stream[:2])
        try:
            other = duplicate(adapter)
        except Exception as error:
            raise AssertionError(f"{word} failed: {error}") from error
        expected = predictions(adapter, stream[2:])
        assert same(expected, predictions(other, stream[2:])), f"a copy by {word} does not go on exactly"


def check_bad_input(case: Case) -> None:
    """Each bad batch is refused with a clear error, and the state is untouched."""
    adapter, good = case.adapter(), case.stream()[0]
    adapter(good)
    before = flat_state(adapter.state_dict())

    def refuses(x: Tensor, call: Callable[[Tensor], Any], words: str, *errors: type[CttaError]) -> None:
        kind = f"a bad batch ({words or f'shape {tuple(x.shape)}'})"
        try:
            call(x)
        except errors as error:
            if words not in str(error):
                raise AssertionError(f"{kind} was refused with another message: {error}") from error
        else:
            raise AssertionError(f"{kind} was accepted")
        assert same(before, flat_state(adapter.state_dict())), f"{kind} changed the state"

    spoiled = [
        ("NaN or infinity", good.flatten().index_fill(0, torch.tensor(3), float("nan")).view_as(good)),
        ("NaN or infinity", good.flatten().index_fill(0, torch.tensor(0), float("inf")).view_as(good)),
        ("empty", good[:0]),
        ("floating point", (good * 255).to(torch.uint8)),
        ("float64", good.double()),
        ("batch dimension", good.flatten()[:10]),
    ]
    if good.dim() == 4:
        spoiled += [("normalised", (good - 0.5) / 0.25), ("8-bit", good * 255), ("normalised", good * 3e38)]
    if case.has("draw") and good.dim() == 4:
        spoiled += [
            ("unsqueeze", good[0]),
            ("views of their own", torch.rand(4, 7, 16, 16)),
        ]
    for words, x in spoiled:
        refuses(x, adapter.step, words, InputError)
        refuses(x, adapter.predict, words, InputError)
    for x in (good[0], good[:, :2] if good.dim() == 4 else good[:, :, :2]):
        refuses(x, adapter.step, "", InputError, ModelError)


def check_one_sample(case: Case) -> None:
    """A batch of one sample works."""
    adapter = case.adapter()
    for x in case.stream(3):
        try:
            logits = adapter(x[:1])
        except CttaError as error:
            raise AssertionError(f"one sample was refused: {error}") from error
        assert logits.shape == (1, CLASSES), f"one sample gave logits of shape {tuple(logits.shape)}"


class Fuse:
    """What goes wrong in a network, and at which pass; all copies of the network share it."""

    def __init__(self) -> None:
        self.fault: str | BaseException = ""  # "answers", "gradient", an error to raise, or "" for nothing
        self.passes = 0  # until it goes wrong

    def __deepcopy__(self, memo: Any) -> Fuse:
        return self

    def arm(self, fault: str | BaseException, passes: int = 0) -> None:
        self.fault, self.passes = fault, passes

    def burn(self, logits: Tensor) -> Tensor:
        self.passes -= 1
        if self.passes >= 0 or self.fault == "":
            return logits
        if isinstance(self.fault, BaseException):
            raise self.fault
        if self.fault == "answers":
            return torch.full_like(logits, float("nan"))
        return self.poison(logits)

    def poison(self, values: Tensor) -> Tensor:
        """The same values, with a gradient that is not finite if that is the fault."""
        if self.fault != "gradient":
            return values
        poisoned: Tensor = PoisonedGradient.apply(values)  # type: ignore[no-untyped-call]
        return poisoned


class PoisonedGradient(torch.autograd.Function):
    """Passes its input on; the gradient is not finite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * float("nan")


class Fragile(nn.Module):
    """A network that fails as its fuse says."""

    def __init__(self, network: nn.Module, fuse: Fuse) -> None:
        super().__init__()
        self.network, self.fuse = network, fuse
        head = network.get_submodule(networks.find_head(network, CLASSES))
        head.register_forward_pre_hook(lambda _, args: (fuse.poison(args[0]),))  # for losses that end in features

    def forward(self, x: Tensor) -> Tensor:
        return self.fuse.burn(self.network(x))


def check_skips_non_finite(case: Case) -> None:
    """A gradient that is not finite changes nothing, at the first step or later, and the step is counted."""
    learns, fuse = case.learns, Fuse()
    for cut in (0, 2):
        adapter, stream = case.adapter(model=Fragile(case.model(), fuse)), case.stream()
        adapter.change_settings(*adapter.settings_for(stream[0].shape))
        predictions(adapter, stream[:cut])
        before = flat_state(_learned(adapter))
        fuse.arm("gradient")
        step = adapter.step(stream[cut])
        fuse.arm("")
        assert step.logits.isfinite().all(), "the logits are not finite"
        assert step.info["skipped"] == int(learns), "a gradient that is not finite was not skipped"
        if learns:
            assert same(before, flat_state(_learned(adapter))), "a gradient that is not finite changed the state"
        predictions(adapter, stream[cut:])
        assert adapter.skipped == int(learns), f"{int(adapter.skipped)} skipped steps were counted"


def _learned(adapter: Adapter) -> dict[str, Any]:
    """The state without what goes on after a skipped step: the settings, the counts and the detector of drift."""
    state = adapter.state_dict()
    optimizer = state.pop("_extra_state")["optimizer"]
    return {"optimizer": optimizer} | {k: v for k, v in state.items() if k != "skipped" and "drift." not in k}


def check_fails_whole(case: Case) -> None:
    """If the model fails at any pass of a batch, or answers NaN, or the user interrupts, the state is untouched."""
    fuse = Fuse()
    for fault in ("answers", ValueError("planted"), KeyboardInterrupt()):
        adapter, stream = case.adapter(model=Fragile(case.model(), fuse)), case.stream()
        for x in stream[:2]:
            before = flat_state(adapter.state_dict())
            passes = 1000  # until one batch has gone well
            fuse.arm("", passes)
            copy.deepcopy(adapter).step(x)
            for number in range(1 if fault == "answers" else passes - fuse.passes):
                fuse.arm(fault, number)
                try:
                    adapter.step(x)
                except (ModelError, InputError, KeyboardInterrupt):
                    pass
                else:
                    raise AssertionError(f"a failure at pass {number} ({fault!r}) went unnoticed")
                finally:
                    fuse.arm("")
                assert same(before, flat_state(adapter.state_dict())), f"a failure at pass {number} changed the state"
            adapter.step(x)


def check_default_dtype(case: Case) -> None:
    """A program whose default is double precision still gets the model's own precision."""
    stream = case.stream(3)
    expected = predictions(case.adapter(), stream)
    model, before = case.model(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        adapter = case.adapter(model=model)
        assert same(expected, predictions(adapter, stream)), "the default dtype changes the predictions"
        assert all(value.dtype == torch.float32 for value in adapter.parameters()), "the default dtype reached weights"
    finally:
        torch.set_default_dtype(before)


def check_other_device(case: Case) -> None:
    """On a device that is not the CPU, or after a move to it, nothing is on the CPU: no operand and no state."""
    for moved in (False, True):
        with pretended() as device:
            try:
                adapter = case.adapter(model=case.model() if moved else case.model().to(device)).to(device)
                for x in case.stream(2)[int(moved) :]:
                    step = adapter.step(x.to(device))
                adapter.predict(x.to(device))
            except (CttaError, RuntimeError, TypeError) as error:
                raise AssertionError(f"it fails on another device than the CPU: {error}") from error
            held = [*adapter.named_parameters(), *adapter.named_buffers(), ("the logits", step.logits)]
            held += [("samples", value) for value in step.samples.values()]
            if adapter.optimizer is not None:
                held += [("the optimiser", value) for value in optim.moments(adapter.optimizer)]
            left = list(dict.fromkeys(name for name, value in held if value.device != device))
            assert not left, f"it left on the CPU: {', '.join(left)}"


def check_two_synchronisations(case: Case) -> None:
    """At most two host-device synchronisations per batch: one before anything changes, one after."""
    fields: dict[str, Any] = {"augmentation_threshold": 0.5} if case.has("augmentation_threshold") else {}
    with pretended() as device:
        adapter = case.adapter(model=case.model().to(device), **fields)
        for number, x in enumerate(case.stream(3)):
            there = x.to(device)
            waits.clear()
            adapter.step(there)
            assert len(waits) <= 2, f"batch {number} waited for the device {len(waits)}x: {waits}"


CHECKS: tuple[Callable[[Case], None], ...] = tuple(
    value for name, value in list(globals().items()) if name.startswith("check_")
)
