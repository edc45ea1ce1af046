"""Whose prediction counts, and a teacher that no longer follows: settings of every method with a teacher."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctta import METHODS, RMT, StateError
from ctta.core.teacher import TeacherAdapter
from ctta.testing.networks import make_batch, make_network

FIELDS = {
    "cotta": {"views": 2},
    "dss": {"views": 2},
    "rmt": {"source_free": True},
    "rotta": {"every": 8},
    "sift": {"views": 2},
    "vdp": {},
}
STREAM = [make_batch("image_bn", 8, seed) for seed in range(5)]
WITH_TEACHER = sorted(name for name, method in METHODS.items() if issubclass(method, TeacherAdapter))


def made(method: str, **fields) -> TeacherAdapter:
    return METHODS[method](make_network("image_bn"), preset="cifar10", **FIELDS[method], **fields)


def weights(network: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_every_method_with_a_teacher_is_tested():
    assert sorted(FIELDS) == WITH_TEACHER


@pytest.mark.parametrize("method", WITH_TEACHER)
def test_both_is_the_sum_of_student_and_teacher_or_their_mean(method):
    student, teacher, both = (made(method, answers=answers) for answers in ("student", "teacher", "both"))
    each = 0.5 if method == "sift" else 1.0
    for x in STREAM:
        found = [adapter.step(x, corrected=False).logits for adapter in (student, teacher, both)]
        torch.testing.assert_close(found[2], each * (found[0] + found[1]))
    assert not torch.allclose(found[0], found[1]), "the student has moved ahead"
    x = STREAM[0]
    one, other, together = (adapter.predict(x, corrected=False) for adapter in (student, teacher, both))
    torch.testing.assert_close(together, each * (one + other))
    torch.testing.assert_close(both.export(x)(x), both.predict(x))
    torch.testing.assert_close(both.export(x, corrected=False)(x), together)


@pytest.mark.parametrize("method", WITH_TEACHER)
def test_a_frozen_teacher_stays_where_it_was(method):
    frozen, source = made(method, frozen_after=2, ema=0.5), made(method, ema=1.0)
    seen = []
    for x in STREAM:
        frozen(x)
        source(x)
        seen.append(weights(frozen.teacher))
    assert not torch.equal(seen[0], seen[1])
    assert all(torch.equal(seen[1], later) for later in seen[2:])
    start = torch.zeros_like(seen[0]) if method == "vdp" else weights(source.source_model)  # VDP's are prompts
    assert torch.equal(weights(source.teacher), start)
    assert not torch.equal(weights(source.student), start), "the student learns all the same"


def test_rmt_takes_the_rows_of_the_classifier_for_prototypes():
    adapter = made("rmt")
    assert torch.equal(adapter.source_prototypes, adapter.source_model.head.weight)
    adapter(STREAM[0])
    with pytest.raises(StateError, match="prepare"):
        RMT(make_network("image_bn"), preset="cifar10")(STREAM[0])
