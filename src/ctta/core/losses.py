"""Formulas used by two or more methods. Losses take logits (N, C) and give one value per sample, (N,)."""

from __future__ import annotations

import math

from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """-sum_c p_c log p_c of the prediction."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """-sum_c target_c log p_c; `target` holds probabilities, (N, C)."""
    return -(target * logits.log_softmax(1)).sum(1)


def consistency(teacher: Tensor, student: Tensor, *, symmetric: bool) -> Tensor:
    """CoTTA's loss, of logits and logits: the student follows the teacher; `symmetric` averages both directions."""
    forward = cross_entropy(teacher.softmax(1), student)
    return 0.5 * forward + 0.5 * cross_entropy(student.softmax(1), teacher) if symmetric else forward


def self_training(student: Tensor, view_student: Tensor, teacher: Tensor) -> Tensor:
    """Both of the student's predictions are drawn to the teacher's, in both directions."""
    return 0.5 * (consistency(teacher, student, symmetric=True) + consistency(teacher, view_student, symmetric=True))


def averaged(logits: Tensor) -> Tensor:
    """Logits whose probabilities are the mean of those of the first dimension: log of the mean of softmax."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the values with the mask set; 0 if there are none."""
    return (values * mask).sum() / mask.sum().clamp(min=1)
