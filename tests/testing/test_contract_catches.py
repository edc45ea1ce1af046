"""Methods that are broken on purpose: the contract must catch each one, and catch it in the right check."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

import contract
from contract import Case
from ctta import METHODS, TENT, Source, Step


class KeepsHiddenState(TENT):
    """State in a plain attribute: not saved, not reset."""

    def build(self):
        super().build()
        self.bias_of_mine = torch.zeros(self.classes)

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        self.bias_of_mine = 0.9 * self.bias_of_mine + 0.1 * step.logits.detach().mean(0)
        return Step(step.logits + self.bias_of_mine, step.info)


class CountsInPython(TENT):
    """A counter that drives behaviour and rides nowhere."""

    seen = 0

    def adapt(self, x: Tensor) -> Step:
        self.seen += 1
        step = super().adapt(x)
        return Step(step.logits * (1 + self.seen), step.info)


class OwnOptimizer(TENT):
    """An optimiser under another name: its moments are lost on the way to disk."""

    def build(self):
        super().build()
        self.mine, self.optimizer = self.optimizer, None

    def adapt(self, x: Tensor) -> Step:
        self.optimizer = self.mine
        try:
            return super().adapt(x)
        finally:
            self.optimizer = None


class OutsideRandomness(Source):
    """Draws from a generator of the process."""

    def adapt(self, x: Tensor) -> Step:
        return Step(super().adapt(x).logits * (1 + random.random()))


class ChangesTheInput(Source):
    """Normalises the batch in place."""

    def adapt(self, x: Tensor) -> Step:
        return super().adapt(x.mul_(0.5))


class ChangesTheModel(TENT):
    """Works on the caller's model."""

    def __init__(self, model, *args, **kwargs):
        super().__init__(model, *args, **kwargs)
        self.theirs = [model]

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        with torch.no_grad():
            next(self.theirs[0].parameters()).add_(1e-3)
        return step


class DrawsGlobally(Source):
    """Advances the global generator outside the scope of a batch."""

    def step(self, x: Tensor) -> Step:
        torch.rand(1)
        return super().step(x)


class KeepsTheGraph(TENT):
    """Remembers logits with their graph."""

    def adapt(self, x: Tensor) -> Step:
        self.last = self.run(self.model, x, grad=True)
        return super().adapt(x)


class Grows(Source):
    """Remembers every batch."""

    def build(self):
        self.memory: list[Tensor] = []

    def adapt(self, x: Tensor) -> Step:
        self.memory.append(x.clone())
        return super().adapt(x)


class LearnsWhenAsked(TENT):
    """Learns in predict()."""

    def answer(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            next(self.model.parameters()).mul_(0.99)
        return super().answer(x)


class DropsAClass(Source):
    """Answers with one class too few."""

    def adapt(self, x: Tensor) -> Step:
        return Step(super().adapt(x).logits[:, :-1])


class ObeysModes(TENT):
    """Lets train() and eval() through to the networks."""

    def train(self, mode: bool = True):
        for child in self.children():
            child.train(mode)
        return self


class NoPickle(Source):
    """Holds a function that cannot be pickled."""

    def build(self):
        self.score = lambda logits: logits

    def adapt(self, x: Tensor) -> Step:
        return Step(self.score(super().adapt(x).logits))


class LearnsAnything(TENT):
    """Steps without looking at the loss."""

    def learn(self, loss: Tensor) -> Tensor:
        self.check()
        loss.backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.data.sub_(0.01 * parameter.grad)
                parameter.grad = None
        return loss.detach()


class LearnsBeforeItLooks(TENT):
    """Changes state before the batch is checked."""

    def adapt(self, x: Tensor) -> Step:
        with torch.no_grad():
            next(self.model.parameters()).mul_(0.99)
        return super().adapt(x)


class ReadsOften(TENT):
    """Reads the device again and again."""

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        return Step(step.logits, {**step.info, "sure": torch.tensor(float(step.logits.detach().mean()))})


class SetsThreads(Source):
    """Takes the whole machine for itself."""

    def adapt(self, x: Tensor) -> Step:
        torch.set_num_threads(torch.get_num_threads() + 1)
        return super().adapt(x)


CAUGHT = [
    (KeepsHiddenState, contract.check_save_and_load),
    (KeepsHiddenState, contract.check_reset_replays),
    (CountsInPython, contract.check_reset_replays),
    (CountsInPython, contract.check_save_and_load),
    (OwnOptimizer, contract.check_save_and_load),
    (OutsideRandomness, contract.check_seeding),
    (ChangesTheInput, contract.check_leaves_the_caller_alone),
    (ChangesTheModel, contract.check_leaves_the_caller_alone),
    (DrawsGlobally, contract.check_leaves_the_caller_alone),
    (SetsThreads, contract.check_leaves_the_caller_alone),
    (KeepsTheGraph, contract.check_keeps_no_graph),
    (Grows, contract.check_bounded_state),
    (LearnsWhenAsked, contract.check_predict_changes_nothing),
    (DropsAClass, contract.check_answers),
    (ObeysModes, contract.check_modes_are_inert),
    (NoPickle, contract.check_copies),
    (LearnsAnything, contract.check_skips_non_finite),
    (LearnsBeforeItLooks, contract.check_bad_input),
    (ReadsOften, contract.check_one_synchronisation),
]


@pytest.mark.parametrize(("method", "check"), CAUGHT, ids=lambda value: value.__name__)
def test_the_contract_catches(method, check):
    threads = torch.get_num_threads()
    with pytest.raises((AssertionError, RuntimeError, AttributeError)) as caught:
        check(Case(method, "image_bn"))
    torch.set_num_threads(threads)
    assert caught.value is not None


@pytest.mark.parametrize("check", dict.fromkeys(check for _, check in CAUGHT), ids=lambda value: value.__name__)
def test_the_same_checks_pass_on_a_sound_method(check):
    check(Case(METHODS["tent"], "image_bn"))
