"""A batch that fails leaves nothing behind, at the cost of copying only what learns."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from ctta import DSS, TENT, ModelError, Step
from ctta.core.undo import Before, all_finite
from ctta.testing.contract import flat_state, same
from ctta.testing.networks import make_network, make_stream

STREAM = make_stream("image_bn")


def test_only_what_has_changed_is_copied_again():
    still, moving, before = torch.ones(2), torch.ones(2), Before()
    before.keep([still, moving])
    kept = before.copies()
    moving.mul_(3)
    assert before.changed() == [moving]
    before.keep([still, moving])
    assert before.changed() == []
    assert [value.tolist() for value in before.copies()] == [[1, 1], [3, 3]]
    assert all(value is old for value, old in zip(before.copies(), kept, strict=True))
    moving.mul_(3)
    still.add_(1)
    before.restore()
    assert (still.tolist(), moving.tolist()) == ([1, 1], [3, 3])
    assert before.changed() == []


def test_a_shared_value_is_never_written_to():
    source, own, before = torch.ones(2), torch.ones(2), Before()
    before.share([own], [source])
    before.keep([own])
    assert before.copies() == []
    own.fill_(5)
    before.restore()
    assert own.tolist() == [1, 1]
    own.fill_(5)
    before.keep([own])
    own.fill_(7)
    before.restore()
    assert (own.tolist(), source.tolist()) == ([5, 5], [1, 1])


def test_what_is_not_finite_is_found():
    bad, empty, whole = torch.tensor([0.0, float("nan")]), torch.zeros(0), torch.tensor([1])
    assert [bool(each) for each in all_finite([torch.ones(2), bad, empty, whole, bad.double()])] == [True, False, False]
    assert all_finite([]) == []


def test_weights_that_only_learn_are_kept_for_norm_methods():
    adapter = TENT(make_network("image_bn"))
    adapter(STREAM[0])
    adapter(STREAM[1])
    copied = {id(entry.tensor) for entry in adapter._before._kept.values() if not entry.shared}
    trained = {id(parameter) for parameter in adapter.trained}
    assert {id(parameter) for parameter in adapter.model.parameters()} & copied == trained


class Overflows(TENT):
    """Its weights are infinite after the third batch."""

    name, title = "overflows", "Overflows"

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        if self.batches == 2:
            with torch.no_grad():
                self.model.bn1.weight[0] = float("inf")
        return step


def test_weights_that_are_not_finite_after_a_step_go_back(caplog):
    adapter, stream = Overflows(make_network("image_bn")), STREAM
    adapter(stream[0])
    adapter(stream[1])
    before = flat_state(list(adapter.model.state_dict().values()))
    step = adapter.step(stream[2])
    assert step.logits.isfinite().all()
    assert step.info["skipped"] == adapter.skipped == 1
    assert same(before, flat_state(list(adapter.model.state_dict().values())))
    assert "batch 2 are not finite. Nothing of it was kept." in caplog.text
    assert adapter.step(stream[3]).info["skipped"] == 0


@pytest.mark.parametrize("method", [TENT, DSS])
def test_weights_that_answer_no_more_go_back_to_the_source(method, caplog):
    adapter = method(make_network("image_bn"), preset="cifar10", **({"views": 1} if method is DSS else {}))
    expected = adapter.step(STREAM[0]).logits
    adapter.reset()
    with torch.no_grad():
        for parameter in adapter.network.parameters():
            parameter.fill_(1e38)
    with pytest.raises(ModelError, match="NaN or infinity for 8 of 8 samples"):
        adapter.predict(STREAM[0])
    with caplog.at_level(logging.WARNING, "ctta"):
        step = adapter.step(STREAM[0])
    assert "went back to the source's" in caplog.text
    assert step.info["restored"] == 1
    if method is TENT:  # draws nothing at random
        torch.testing.assert_close(step.logits, expected)
    assert all(parameter.abs().max() < 1e3 for parameter in adapter.network.parameters())
    assert step.info["skipped"] == 0, "it has learned from the batch"
    again = adapter.step(STREAM[1])
    assert again.logits.isfinite().all()
    assert "restored" not in again.info


def test_weights_that_answer_no_more_are_put_back_if_the_batch_fails():
    """The batch fails after they went back to the source's: all is as it was before."""
    adapter = TENT(make_network("image_bn"), preset="cifar10")
    adapter(STREAM[0])
    with torch.no_grad():
        for parameter in adapter.network.parameters():
            parameter.fill_(1e38)
    adapt, calls = adapter.adapt, []

    def once(x):
        calls.append(x)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return adapt(x)

    adapter.adapt = once
    with pytest.raises(KeyboardInterrupt):
        adapter(STREAM[1])
    assert all((parameter == 1e38).all() for parameter in adapter.network.parameters())
    assert adapter.step(STREAM[1]).info["restored"] == 1


def test_the_source_s_weights_stay_if_nothing_can_be_learned_from_the_batch():
    """The weights answer no more, and after they went back to the source's the step is not finite either."""
    network = make_network("image_bn")
    adapter = Overflows(network)
    adapter(STREAM[0])
    adapter(STREAM[1])
    with torch.no_grad():
        for parameter in adapter.network.parameters():
            parameter.fill_(1e38)
    step = adapter.step(STREAM[2])
    assert (step.info["restored"], step.info["skipped"]) == (1, 1)
    pairs = zip(adapter.network.parameters(), network.parameters(), strict=True)
    assert all(torch.equal(own, source) for own, source in pairs)
    assert "restored" not in adapter.step(STREAM[3]).info
