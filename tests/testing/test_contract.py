"""Methods that are broken on purpose: the right check of the contract catches each one and names what is wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ctta import TENT, Source, Step, TestAug
from ctta.testing import Case, contract
from ctta.testing.networks import CLASSES


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

    def logits(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            next(self.model.parameters()).mul_(0.99)
        return super().logits(x)


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
    """Steps without a check of the loss."""

    def learn(self, loss: Tensor) -> Tensor:
        loss.backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.data.sub_(0.01 * parameter.grad)
                parameter.grad = None
        return loss.detach()


class LearnsBeforeItLooks(TENT):
    """Changes state before the batch is checked, and in a way that torch does not count."""

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        next(self.model.parameters()).data.mul_(0.99)
        return super().observe(x)


class LearnsInPieces(TENT):
    """Changes state before the last pass, and in a way that torch does not count."""

    def adapt(self, x: Tensor) -> Step:
        next(self.model.parameters()).data.mul_(0.99)
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


class DropsNothing(Source):
    """Returns logits with their graph."""

    def step(self, x: Tensor) -> Step:
        step = super().step(x)
        return Step(step.logits.requires_grad_(), step.info, step.samples)


class IgnoresTheSeed(TestAug):
    """Draws the same augmentations whatever the seed."""

    def __init__(self, *args, seed=0, **kwargs):
        super().__init__(*args, seed=0, **kwargs)


class ForgetsTheStatistics(TENT):
    """Leaves the BatchNorm statistics that it changed in restore_source()."""

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        self.model.bn1.running_mean.add_(1)
        return step

    def restore_source(self) -> None:
        mean = self.model.bn1.running_mean.clone()
        super().restore_source()
        self.model.bn1.running_mean.copy_(mean)


class KeepsTheMoments(TENT):
    """Leaves the optimiser's state in restore_source()."""

    def restore_source(self) -> None:
        optimizer, self.optimizer = self.optimizer, None
        super().restore_source()
        self.optimizer = optimizer


class KeepsTheWeights(TENT):
    """Does nothing in restore_source()."""

    def restore_source(self) -> None:
        pass


class GrowsSlowly(Source):
    """Remembers one number per batch."""

    def build(self):
        self.history: list[float] = []

    def adapt(self, x: Tensor) -> Step:
        self.history.append(0.5)
        return super().adapt(x)


class SourceThatDrifts(TENT):
    """Learns on the copy that stands for the source."""

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        with torch.no_grad():
            self.source_model.head.bias.add_(0.01)
        return step


class AcceptsNaN(Source):
    """Replaces NaN by 0 without a word."""

    def step(self, x: Tensor) -> Step:
        return super().step(x.nan_to_num())


class NeedsTwo(Source):
    """Normalises over the batch in its own way."""

    def adapt(self, x: Tensor) -> Step:
        logits = super().adapt(x).logits
        return Step((logits - logits.mean(0)) / logits.std(0, correction=0))


class TakesTheDefaultPrecision(Source):
    """Makes new tensors in the process's default precision."""

    def adapt(self, x: Tensor) -> Step:
        return Step(super().adapt(x).logits + torch.rand(1, generator=torch.Generator().manual_seed(0)))


class KeepsATable(Source):
    """Weighs classes with a tensor that it made without a device."""

    def adapt(self, x: Tensor) -> Step:
        return Step(super().adapt(x).logits * torch.ones(CLASSES, dtype=x.dtype))


class FillsFromTheHost(Source):
    """Draws noise on the device with the generator of the host."""

    def adapt(self, x: Tensor) -> Step:
        noise = torch.empty_like(x).normal_(generator=self._batch.random.host)
        return Step(self.run(self.source_model, x + 0 * noise))


class AnswersOnTheHost(Source):
    """Moves the answer to the CPU."""

    def adapt(self, x: Tensor) -> Step:
        return Step(super().adapt(x).logits.cpu())


class CountsOnTheHost(Source):
    """Keeps a buffer that it makes again at every batch, without a device."""

    def build(self) -> None:
        super().build()
        self.register_buffer("seen", torch.zeros(()))

    def adapt(self, x: Tensor) -> Step:
        self.seen = torch.tensor(float(len(x)))
        return super().adapt(x)


class SaysThatItLearns(Source):
    """Has traits that are not its own."""

    traits = replace(Source.traits, learns="all parameters")


CAUGHT = [
    (DropsAClass, contract.check_predictions, "shape (8, 4) instead of (8, 5)"),
    (DropsNothing, contract.check_predictions, "the logits are not detached"),
    (SaysThatItLearns, contract.check_traits, "traits.learns is 'all parameters', and it has no optimiser"),
    (ChangesTheInput, contract.check_leaves_the_caller_alone, "the input was changed"),
    (ChangesTheModel, contract.check_leaves_the_caller_alone, "the caller's model has other weights"),
    (DrawsGlobally, contract.check_leaves_the_caller_alone, "the global random generator was used"),
    (SetsThreads, contract.check_leaves_the_caller_alone, "the number of threads was changed"),
    (OutsideRandomness, contract.check_seeding, "the same seed gave other predictions"),
    (IgnoresTheSeed, contract.check_seeding, "another seed gave the same predictions"),
    (KeepsHiddenState, contract.check_reset_replays, "after reset() the predictions are others"),
    (CountsInPython, contract.check_reset_replays, "after reset() the predictions are others"),
    (KeepsTheWeights, contract.check_reset_replays, "after reset() the state is another"),
    (KeepsTheWeights, contract.check_restore_source, "restore_source() left other weights"),
    (ForgetsTheStatistics, contract.check_restore_source, "restore_source() left other statistics"),
    (KeepsTheMoments, contract.check_restore_source, "restore_source() left the optimiser's state"),
    (KeepsHiddenState, contract.check_save_and_load, "it does not go on exactly"),
    (CountsInPython, contract.check_save_and_load, "it does not go on exactly"),
    (OwnOptimizer, contract.check_save_and_load, "it does not go on exactly"),
    (Grows, contract.check_bounded_state, "the adapter grew"),
    (GrowsSlowly, contract.check_bounded_state, "the adapter grew"),
    (KeepsTheGraph, contract.check_keeps_no_graph, "a tensor with its graph is alive"),
    (LearnsWhenAsked, contract.check_predict_changes_nothing, "predict() or source() changed the state"),
    (SourceThatDrifts, contract.check_source_is_the_model, "source(x) is not the model's prediction"),
    (ObeysModes, contract.check_modes_are_inert, "train() changes the predictions"),
    (NoPickle, contract.check_copies, "pickle failed"),
    (LearnsBeforeItLooks, contract.check_bad_input, "a bad batch (NaN or infinity) changed the state"),
    (AcceptsNaN, contract.check_bad_input, "a bad batch (NaN or infinity) was accepted"),
    (NeedsTwo, contract.check_one_sample, "one sample was refused: The model answers NaN"),
    (LearnsAnything, contract.check_skips_non_finite, "was not skipped"),
    (LearnsInPieces, contract.check_fails_whole, "a failure at pass 0 changed the state"),
    (TakesTheDefaultPrecision, contract.check_default_dtype, "the default dtype changes the predictions"),
    (KeepsATable, contract.check_other_device, "it fails on another device than the CPU: Expected all tensors"),
    (FillsFromTheHost, contract.check_other_device, "a generator of another device"),
    (AnswersOnTheHost, contract.check_other_device, "aten::stack got some on lazy:0 and some on the CPU"),
    (CountsOnTheHost, contract.check_other_device, "it left on the CPU: seen"),
    (ReadsOften, contract.check_two_synchronisations, "batch 0 waited for the device 3x"),
]


@pytest.mark.parametrize(("method", "check", "words"), CAUGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_the_contract_catches(method, check, words):
    threads = torch.get_num_threads()
    try:
        with pytest.raises(AssertionError, match=re.escape(words)):
            check(Case(method, "image_bn"))
    finally:
        torch.set_num_threads(threads)


def test_every_check_is_seen_to_fail():
    """That the same checks pass on a sound method is shown by the tests of all methods."""
    assert list(dict.fromkeys(check for _, check, _ in CAUGHT)) == list(contract.CHECKS)
