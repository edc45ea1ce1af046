"""Batches that are interrupted at any line, models that fail in any way, and states that are not what they claim."""

from __future__ import annotations

import copy
import linecache
import random
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import ctta
from ctta import CttaError, ModelError, StateError
from ctta.methods import METHODS
from ctta.testing.contract import Case, flat_state, same
from ctta.testing.networks import CLASSES, make_network, make_stream

STREAM = make_stream("image_bn")
LARGE = [nn.functional.interpolate(x, size=(80, 80)) for x in STREAM[:1]]  # decides on other settings than were assumed
DELICATE = ("descend", "training_statistics", "source_statistics", "accept", "_complete", "keep", "_settle")
OWN = str(Path(ctta.__file__).parent)
MOMENTS = 4  # at random, besides the delicate ones


class Interrupt:
    """Raises KeyboardInterrupt before the n-th line of ctta's own code; lists the functions of the lines."""

    def __init__(self, number=-1):
        self.number, self.functions = number, []

    def __call__(self, frame, event, _):
        return self.line if frame.f_code.co_filename.startswith(OWN) else None

    def line(self, frame, event, _):
        # Python looks for signals at calls and jumps, so never at `try:` itself.
        if event == "line" and linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() != "try:":
            self.functions.append(frame.f_code.co_name)
            if len(self.functions) == self.number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.line

    def during(self, function):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            function()
        finally:
            sys.settrace(before)


def modes(adapter):
    """What decides how layers normalise, and is no tensor."""
    layers = [layer for layer in adapter.modules() if hasattr(layer, "track_running_stats")]
    return [(layer.training, layer.track_running_stats, "forward" in vars(layer)) for layer in layers]


@pytest.mark.parametrize("begun", [False, True], ids=["first batch", "later"])
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_at_any_line_leaves_the_state_as_it_was_or_as_it_is_after_the_batch(method, begun, attempt):
    x = STREAM[1] if begun or METHODS[method].traits.source != "none" else LARGE[0]
    original = Case(METHODS[method], "image_bn", {"boundaries": "detected"}).adapter()
    if begun:
        original.step(STREAM[0])
    after, count = copy.deepcopy(original), Interrupt()
    count.during(lambda: after.step(x))
    lines = count.functions
    ends = [len(lines) - lines[::-1].index(name) for name in DELICATE if name in lines]
    inside = [i + 1 for i, name in enumerate(lines) if name != "_scope"]  # which takes and gives back the lock
    for number in sorted({*ends, *random.Random(f"{method} {begun}").sample(inside[2:], MOMENTS)}):
        adapter = copy.deepcopy(original)
        with pytest.raises(KeyboardInterrupt):
            Interrupt(number).during(lambda adapter=adapter: adapter.step(x))
        expected = original if adapter.batches == original.batches else after
        assert same(flat_state(adapter.state_dict()), flat_state(expected.state_dict())), lines[number - 1]
        assert modes(adapter) == modes(expected), lines[number - 1]
        if expected is original:
            adapter.step(x)
            assert same(flat_state(adapter.state_dict()), flat_state(after.state_dict())), lines[number - 1]
        attempt("interrupts of a batch")


class Odd(nn.Module):
    """A network that does something odd from its n-th pass on."""

    def __init__(self, odd):
        super().__init__()
        self.net, self.odd, self.left = make_network("image_bn"), odd, [-1]
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        logits = self.net(x)
        self.left[0] -= 1
        return self.odd(self, logits, x) if -2 < self.left[0] < 1 and self.left[0] != -1 else logits

    def __deepcopy__(self, memo):
        other = Odd(self.odd)
        other.load_state_dict(self.state_dict())
        other.left = self.left  # all copies count together
        return other.train(self.training)


def raises(error):
    def odd(model, logits, x):
        raise error

    return odd


def counts_unseen(model, logits, x):
    model.count.data.add_(1)
    model.count.numpy()[0] += 1
    raise ValueError("planted")


def puts_another_buffer(model, logits, x):
    model.count = model.count + 1
    raise ValueError("planted")


class WordlessError(Exception):
    def __str__(self):
        raise KeyError


FAULTS = {
    "KeyError": raises(KeyError("k")),
    "AttributeError": raises(AttributeError("a")),
    "ZeroDivisionError": raises(ZeroDivisionError()),
    "AssertionError": raises(AssertionError()),
    "StopIteration": raises(StopIteration()),
    "OSError": raises(OSError(28, "No space left on device")),
    "an exit": raises(SystemExit(1)),
    "an error without words": raises(WordlessError()),
    "a change that is not counted": counts_unseen,
    "a buffer that is replaced": puts_another_buffer,
    "another device": lambda model, logits, x: logits.to("meta"),
    "sparse": lambda model, logits, x: logits.to_sparse(),
    "complex": lambda model, logits, x: logits.to(torch.complex64),
    "a tuple": lambda model, logits, x: (logits,),
    "the input": lambda model, logits, x: x,
    "too few": lambda model, logits, x: logits[:-1],
    "nothing": lambda model, logits, x: None,
}


@pytest.mark.parametrize("method", ["source", "tent", "dss", "adacontrast", "lame"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_that_fails_is_a_model_error_and_changes_nothing(method, fault, attempt):
    model = Odd(FAULTS[fault])
    adapter = Case(METHODS[method], "image_bn").adapter(model=model, classes=CLASSES)
    adapter.step(STREAM[0])
    before = flat_state(adapter.state_dict())
    for passes in (1, 2):
        model.left[0] = passes
        try:
            adapter.step(STREAM[1])
        except ModelError:
            assert same(before, flat_state(adapter.state_dict()))
        else:
            assert model.left[0] > 0, "it was asked that often, and its answer was taken"
        attempt("models that fail")
    model.left[0] = -1


class Sub(torch.Tensor):
    pass


def freed(tensor):
    """As torch's own code does to save memory: the shape stays, the values are gone."""
    copied = tensor.clone()
    copied.untyped_storage().resize_(0)
    return copied


def cut(tensor):
    """A view whose last value has been taken away."""
    copied = torch.zeros(tensor.numel() + 3)[3:].view(tensor.shape)
    copied.untyped_storage().resize_(copied.untyped_storage().nbytes() - 1)
    return copied


TENSORS = {
    "freed": freed,
    "cut": cut,
    "without values": lambda t: t.to("meta"),
    "of a subclass": lambda t: t.clone().as_subclass(Sub),
    "too large for the weights": lambda t: torch.full(t.shape, 1e300, dtype=torch.float64),
    "of eight bits": lambda t: t.float().to(torch.float8_e4m3fn),
    "complex": lambda t: t.to(torch.complex64),
    "quantised": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
    "nested": lambda t: torch.nested.as_nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "sparse": lambda t: t.reshape(-1).to_sparse(),
    "NaN": lambda t: torch.full(t.shape, float("nan")),
}
VALUES = [
    None,
    -1,
    1.5,
    "x" * 10_000,
    "\x1b[31m",
    [],
    {},
    2**64,
    -(10**30),
    torch.zeros(2),
    torch.zeros(2, device="meta"),
]


def changed(state, path, value):
    """A shallow copy of nested dictionaries with another value at one place."""
    copied = dict(state)
    copied[path[0]] = changed(state[path[0]], path[1:], value) if len(path) > 1 else value
    return copied


def places(state, above=()):
    for key, value in state.items():
        yield (*above, key), value
        if isinstance(value, dict):
            yield from places(value, (*above, key))


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning", "ignore:.*uantize:UserWarning")
@pytest.mark.parametrize("method", ["tent", "dss"])
def test_a_state_with_one_wrong_value_is_refused_as_a_whole_or_works(method, attempt):
    adapter = ctta.create(method, make_network("image_bn"), preset="cifar10", boundaries="detected")
    state = copy.deepcopy(dict(adapter.state_dict()))
    before = flat_state(state)
    cases = [(None, {}), ("x", {}), (5, {})]
    for path, value in places(state):
        if isinstance(value, torch.Tensor) and path[-1] in (
            "step",
            "exp_avg",
            "skipped",
            "mean",
            "weight",
            "threshold",
        ):
            cases += [(changed(state, path, make(value)), path) for make in TENSORS.values()]
        if not isinstance(value, torch.Tensor) and "param_groups" not in path:
            cases += [(changed(state, path, wrong), path) for wrong in VALUES]
    for damaged, path in random.Random(0).sample(cases, 180):
        said = ""
        try:
            adapter.load_state_dict(damaged)
        except StateError as error:
            said = str(error)
        if said:
            assert len(said) < 1000, path
            assert said.isprintable(), path
            assert same(before, flat_state(adapter.state_dict())), path
        else:
            loaded = [value for value in flat_state(adapter.state_dict()) if isinstance(value, torch.Tensor)]
            assert all(value.isfinite().all() for value in loaded), path
            adapter.load_state_dict(state)
        attempt("states with a wrong value")


@pytest.mark.parametrize("make", [freed, cut])
def test_tensors_without_their_memory_are_not_read(make, attempt):
    adapter = ctta.create("tent", make_network("image_bn"), preset="cifar10", boundaries="detected")
    state = copy.deepcopy(dict(adapter.state_dict()))
    before = flat_state(state)
    for path, value in places(state):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            with pytest.raises(StateError, match=r"has less memory than its shape needs"):
                adapter.load_state_dict(changed(state, path, make(value)))
            attempt("states with a wrong value")
    assert same(before, flat_state(adapter.state_dict()))


COUNTS = [
    ("drift.reference", (0, 0), -1, "reference has negative counts or squares"),
    ("drift.reference", (2, 4), -1, "reference has negative counts or squares"),
    ("drift.gathered", (0, 3), -40, "gathered has negative counts or squares"),
    ("drift.usual", (), 0, "usual is below 1"),
    ("drift.usual", (), -3, "usual is below 1"),
    ("skipped", (), -1, "skipped has negative values"),
    ("seen", (), -1, "seen has negative values"),
    ("queue_labels", (5,), -1, "queue_labels has negative values"),
]


@pytest.mark.parametrize(("name", "place", "value", "words"), COUNTS)
def test_counts_below_zero_are_refused(name, place, value, words, attempt):
    adapter = ctta.create("adacontrast", make_network("image_bn"), boundaries="detected")
    for x in STREAM:
        adapter(x)
    state = copy.deepcopy(dict(adapter.state_dict()))
    adapter.load_state_dict(state)
    state[name][place] = value
    with pytest.raises(StateError, match=words):
        adapter.load_state_dict(state)
    attempt("states with a wrong value")


def test_an_interrupt_as_a_batch_begins_leaves_the_adapter_free(attempt):
    original, count = ctta.create("tent", make_network("image_bn"), preset="cifar10"), Interrupt()
    first = copy.deepcopy(original)
    count.during(lambda: first.step(STREAM[0]))
    for number in range(1, count.functions.index("all_or_nothing") + 2):
        adapter = copy.deepcopy(original)
        with pytest.raises(KeyboardInterrupt):
            Interrupt(number).during(lambda adapter=adapter: adapter.step(STREAM[0]))
        adapter.step(STREAM[0])
        attempt("interrupts of a batch")


def test_moments_that_share_memory_are_apart_once_they_are_loaded(attempt):
    adapter = ctta.create("tent", make_network("image_bn"), preset="cifar10")
    state = copy.deepcopy(dict(adapter.state_dict()))
    slots, shared = state["_extra_state"]["optimizer"]["state"][0], torch.rand(9)
    slots["exp_avg"], slots["exp_avg_sq"] = shared[:8], shared[1:]
    adapter.load_state_dict(state)
    moments = next(iter(adapter.optimizer.state.values()))
    moments["exp_avg"].zero_()
    assert moments["exp_avg_sq"].equal(shared[1:])
    attempt("states with a wrong value")


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**19, 10**300])
def test_numbers_that_torch_cannot_hold(value, attempt):
    with pytest.raises(CttaError, match="A whole number is at most"):
        ctta.create("rmt", make_network("image_bn"), temperature=abs(value))
    attempt("states with a wrong value")
