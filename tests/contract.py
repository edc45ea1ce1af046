"""What every method must honour, written once. A method is covered the moment it is listed in METHODS.

Each check takes a `Case` and raises AssertionError. `test_contract.py` runs all methods on all networks through all
checks; `test_contract_catches.py` proves, with methods that are broken on purpose, that the checks can fail.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from ctta import Adapter, InputError, ModelError, Step
from networks import CLASSES, make_network, make_stream

# Settings under which hidden state shows: large steps, a quick teacher, views and memories at work, samples selected,
# resets.
LIVELY = {
    "lr": 0.02,
    "ema": 0.5,
    "restore": 0.05,
    "views": 2,
    "augmentation_threshold": 1.0,
    "queue": 24,
    "refine_after": 16,
}
LIVELY |= {"margin": 0.9, "similarity": 0.95, "reset_every": 4}


@dataclass(frozen=True)
class Case:
    """One method on one network."""

    method: type[Adapter]
    network: str

    def model(self) -> nn.Module:
        return make_network(self.network)

    def adapter(self, *, seed: int = 0, model: nn.Module | None = None, **fields: Any) -> Adapter:
        lively = {key: value for key, value in LIVELY.items() if key in self.method.config_type.fields()}
        adapter = self.method(model or self.model(), seed=seed, **{**lively, **fields})
        adapter.prepare((x, torch.arange(len(x)) % CLASSES) for x in make_stream(self.network, 2))
        return adapter

    def stream(self, batches: int = 6) -> list[Tensor]:
        return make_stream(self.network, batches)

    @property
    def learns(self) -> bool:
        return self.adapter().optimizer is not None

    @property
    def makes_views(self) -> bool:
        return "draw" in self.method.config_type.fields()


def answers(adapter: Adapter, stream: list[Tensor]) -> list[Tensor]:
    return [adapter(x) for x in stream]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def flat_state(value: Any) -> list[Any]:
    """Everything in a state dict, as a flat list of clones and plain values."""
    if isinstance(value, Tensor):
        return [value.detach().clone()]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in [key, *flat_state(value[key])]]
    if isinstance(value, list | tuple):
        return [leaf for entry in value for leaf in flat_state(entry)]
    return [value]


def same_state(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(left, right, strict=True)
    )


def check_answers(case: Case) -> None:
    """(N, C), detached, finite, of the model's dtype; a ragged last batch works; info is 0-d, samples are (N,)."""
    adapter = case.adapter()
    for x in case.stream():
        step = adapter.step(x)
        assert isinstance(step, Step)
        assert step.logits.shape == (len(x), CLASSES)
        assert step.logits.grad_fn is None
        assert not step.logits.requires_grad
        assert step.logits.isfinite().all()
        assert step.logits.dtype == x.dtype
        assert {"confidence", "skipped", "forwards", "backwards"} <= set(step.info)
        assert all(value.dim() == 0 and not value.requires_grad for value in step.info.values())
        assert "confidence" in step.samples
        assert all(value.shape == (len(x),) for value in step.samples.values())
    assert adapter.batches == 6


def check_leaves_the_caller_alone(case: Case) -> None:
    """Model, input, global generator, grad mode, threads and default dtype are as they were."""
    model = case.model()
    before = flat_state(model.state_dict())
    modes = [module.training for module in model.modules()]
    wants = [parameter.requires_grad for parameter in model.parameters()]
    stream = case.stream()
    inputs = [x.clone() for x in stream]
    generator, threads = torch.get_rng_state(), torch.get_num_threads()
    adapter = case.adapter(model=model)
    answers(adapter, stream)
    adapter.predict(stream[0])
    adapter.source(stream[0])
    assert same_state(before, flat_state(model.state_dict()))
    assert modes == [module.training for module in model.modules()]
    assert wants == [parameter.requires_grad for parameter in model.parameters()]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert same(inputs, stream)
    assert torch.equal(generator, torch.get_rng_state())
    assert torch.is_grad_enabled()
    assert threads == torch.get_num_threads()
    assert torch.get_default_dtype() == torch.float32


def check_seeding(case: Case) -> None:
    """The same seed gives the same answers whatever the global generator does; another seed gives others."""
    stream = case.stream()
    first = answers(case.adapter(seed=3), stream)
    torch.manual_seed(123)
    assert same(first, answers(case.adapter(seed=3), stream))
    random = case.makes_views or "restore" in case.method.config_type.fields()
    assert same(first, answers(case.adapter(seed=4), stream)) != random


def check_reset_replays(case: Case) -> None:
    """After reset the same stream gives the same answers, and the whole state is as it was made."""
    adapter, stream = case.adapter(), case.stream()
    fresh = flat_state(adapter.state_dict())
    first = answers(adapter, stream)
    if case.learns:
        assert not same_state(fresh, flat_state(adapter.state_dict())), "the stream must move the state"
        assert not same(first, answers(adapter, stream)), "the state must matter"
    adapter.begin_domain()
    adapter.reset()
    assert same_state(fresh, flat_state(adapter.state_dict()))
    assert same(first, answers(adapter, stream))


def check_restore_source(case: Case) -> None:
    """Every network and the optimiser go back to the source; counters go on."""
    adapter, stream = case.adapter(), case.stream()
    fresh = case.adapter()
    answers(adapter, stream)
    adapter.restore_source()
    assert adapter.batches == len(stream)
    assert same(list(fresh.parameters()), list(adapter.parameters()))
    if adapter.optimizer is not None:
        assert all((value == 0).all() for slots in adapter.optimizer.state.values() for value in slots.values())
    assert torch.equal(adapter.predict(stream[0]), fresh.predict(stream[0])) or case.makes_views


def check_save_and_load(case: Case) -> None:
    """Saved anywhere, loaded with weights_only=True into a fresh adapter, the stream goes on exactly."""
    stream = case.stream()
    for cut in (0, 1, 3):
        adapter = case.adapter(seed=5)
        answers(adapter, stream[:cut])
        adapter.begin_domain()
        buffer = io.BytesIO()
        torch.save(adapter.state_dict(), buffer)
        rest = answers(adapter, stream[cut:])
        buffer.seek(0)
        other = case.adapter(seed=0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert other.batches == cut
        assert same(rest, answers(other, stream[cut:]))


def check_bounded_state(case: Case) -> None:
    """200 batches later the state has the size it had after the first."""

    def size(adapter: Adapter) -> int:
        buffer = io.BytesIO()
        pickle.dump(adapter, buffer)
        return len(buffer.getvalue()) // 1024

    fields = {"views": 1} if "views" in case.method.config_type.fields() else {}
    adapter, stream = case.adapter(**fields), [x[:4] for x in case.stream(4)]
    adapter(stream[0])
    start = size(adapter)
    for i in range(199):
        adapter(stream[i % 4])
    assert size(adapter) <= start + 1, (start, size(adapter))


def check_keeps_no_graph(case: Case) -> None:
    """After a batch nothing that hangs on a graph is alive, and no gradient is kept."""
    adapter, stream = case.adapter(), case.stream()
    gc.collect()
    gc.freeze()  # so that only what the batches leave behind is looked at
    try:
        kept = [adapter.step(x) for x in stream]
        gc.collect()
        alive = [value for value in gc.get_objects() if issubclass(type(value), Tensor)]
    finally:
        gc.unfreeze()
    assert kept
    assert not [value for value in alive if value.grad_fn is not None]
    assert all(parameter.grad is None for parameter in adapter.parameters())


def check_predict_changes_nothing(case: Case) -> None:
    """predict() and source() between batches leave the state and the stream's answers as they are."""
    stream = case.stream()
    expected = answers(case.adapter(), stream)
    adapter = case.adapter()
    found = []
    for x in stream:
        before = flat_state(adapter.state_dict())
        once, twice = adapter.predict(x), adapter.predict(x)
        adapter.source(stream[0])
        assert torch.equal(once, twice)
        assert same_state(before, flat_state(adapter.state_dict()))
        found.append(adapter(x))
    assert same(expected, found)


def check_source_is_the_model(case: Case) -> None:
    """source(x) is what the caller's model says in eval mode, at any point of the stream."""
    model, stream = case.model(), case.stream()
    adapter = case.adapter(model=model)
    model.eval()
    for x in stream:
        with torch.no_grad():
            expected = model(x)
        assert torch.allclose(adapter.source(x), expected, atol=1e-5)
        adapter(x)


def check_modes_are_inert(case: Case) -> None:
    """train() and eval() from outside change nothing; nor do no_grad and inference_mode."""
    stream = case.stream()
    expected = answers(case.adapter(), stream)

    def under(context: Any, mode: bool | None = None) -> list[Tensor]:
        adapter, found = case.adapter(), []
        for x in stream:
            holder = nn.Sequential(adapter)
            if mode is not None:
                holder.train(mode)
            with context():
                found.append(adapter(x + 0))  # under inference_mode this makes an inference tensor
        return found

    @contextmanager
    def nothing() -> Iterator[None]:
        yield

    assert same(expected, under(nothing, True))
    assert same(expected, under(nothing, False))
    assert same(expected, under(torch.no_grad))
    assert same(expected, under(torch.inference_mode))


def check_copies(case: Case) -> None:
    """Pickled and deep-copied adapters go on exactly, and are independent of the original."""
    stream = case.stream()
    for duplicate in (copy.deepcopy, lambda adapter: pickle.loads(pickle.dumps(adapter))):
        adapter = case.adapter()
        answers(adapter, stream[:2])
        other = duplicate(adapter)
        expected = answers(adapter, stream[2:])
        assert same(expected, answers(other, stream[2:]))


def check_bad_input(case: Case) -> None:
    """Each bad batch is a clear error, and the state is untouched."""
    adapter, good = case.adapter(), case.stream()[0]
    adapter(good)
    before = flat_state(adapter.state_dict())
    spoiled = {
        "NaN or infinity": good.clone().flatten().index_fill(0, torch.tensor(3), float("nan")).view_as(good),
        "NaN or infinity ": good.clone().flatten().index_fill(0, torch.tensor(0), float("inf")).view_as(good),
        "empty": good[:0],
        "floating point": (good * 255).to(torch.uint8),
        "float64": good.double(),
        "batch dimension": good.flatten()[:10],
    }
    if case.makes_views and good.dim() == 4:
        spoiled["normalised"] = (good - 0.5) / 0.25
        spoiled["unsqueeze"] = good[0]
        spoiled["views of their own"] = torch.rand(4, 7, 16, 16)
    for words, x in spoiled.items():
        for call in (adapter.step, adapter.predict):
            with pytest.raises(InputError, match=words.strip()):
                call(x)
            assert same_state(before, flat_state(adapter.state_dict()))
    for x in (good[0], good[:, :2] if good.dim() == 4 else good[:, :, :2]):
        with pytest.raises((InputError, ModelError)):
            adapter.step(x)
        assert same_state(before, flat_state(adapter.state_dict()))


def check_one_sample(case: Case) -> None:
    """A batch of one works."""
    adapter = case.adapter()
    for x in case.stream(3):
        assert adapter(x[:1]).shape == (1, CLASSES)


class Fragile(nn.Module):
    """A network that overflows while it is armed."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.armed = False

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x) * (float("nan") if self.armed else 1.0)


def arm(adapter: Adapter, armed: bool) -> None:
    for module in adapter.modules():
        if isinstance(module, Fragile):
            module.armed = armed


def check_skips_non_finite(case: Case) -> None:
    """A non-finite loss never reaches the weights, at the first step or later; the step is counted."""
    for cut in (0, 2):
        adapter = case.adapter(model=Fragile(case.model()))
        stream = case.stream()
        answers(adapter, stream[:cut])
        weights = [parameter.clone() for parameter in adapter.parameters()]
        moments = _moments(adapter)
        arm(adapter, True)
        step = adapter.step(stream[cut])
        arm(adapter, False)
        if case.learns:
            assert step.info["skipped"] == 1
            assert adapter.skipped == 1
            assert same(moments, _moments(adapter))
            if "restore" not in case.method.config_type.fields():
                assert same(weights, list(adapter.parameters()))
        later = answers(adapter, stream[cut:])
        assert all(logits.isfinite().all() for logits in later)
        assert all(parameter.isfinite().all() for parameter in adapter.parameters())
        assert all(buffer.isfinite().all() for buffer in adapter.buffers())
        assert adapter.skipped == int(case.learns)


def _moments(adapter: Adapter) -> list[Tensor]:
    if adapter.optimizer is None:
        return []
    return [value.clone() for slots in adapter.optimizer.state.values() for value in slots.values()]


def check_default_dtype(case: Case) -> None:
    """A program that works in double precision by default still gets the model's own precision."""
    stream = case.stream(3)
    expected = answers(case.adapter(), stream)
    model = case.model()
    torch.set_default_dtype(torch.float64)
    try:
        adapter = case.adapter(model=model)
        assert same(expected, answers(adapter, stream))
        assert all(value.dtype == torch.float32 for value in adapter.parameters())
    finally:
        torch.set_default_dtype(torch.float32)


class OnDevice(Tensor):
    """A tensor that pretends to live on a device: reading it on the host is counted, and waiting for a copy to it."""

    reads: ClassVar[list[str]] = []
    HOST: ClassVar[set[str]] = {
        "item",
        "tolist",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "cpu",
        "numpy",
        "nonzero",
        "masked_select",
        "unique",
        "bincount",
    }

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        masked = name in ("__getitem__", "__setitem__") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool
            for index in (args[1] if isinstance(args[1], tuple) else (args[1],))
        )
        waits = name == "to" and not isinstance(args[0], OnDevice) and not (kwargs or {}).get("non_blocking")
        if (name in cls.HOST and isinstance(args[0], OnDevice)) or masked or waits:
            cls.reads.append(name)
        return super().__torch_function__(function, types, args, kwargs or {})


def check_one_synchronisation(case: Case) -> None:
    """At most one host-device synchronisation a batch; one more at the first, where it is tried how views may go."""
    fields = {"augmentation_threshold": 0.5} if "augmentation_threshold" in case.method.config_type.fields() else {}
    adapter = case.adapter(**fields)
    for number, x in enumerate(case.stream(3)):
        OnDevice.reads.clear()
        adapter.step(x.as_subclass(OnDevice))
        assert len(OnDevice.reads) <= (2 if number == 0 else 1), OnDevice.reads


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_answers,
    check_leaves_the_caller_alone,
    check_seeding,
    check_reset_replays,
    check_restore_source,
    check_save_and_load,
    check_bounded_state,
    check_keeps_no_graph,
    check_predict_changes_nothing,
    check_source_is_the_model,
    check_modes_are_inert,
    check_copies,
    check_bad_input,
    check_one_sample,
    check_skips_non_finite,
    check_default_dtype,
    check_one_synchronisation,
)
