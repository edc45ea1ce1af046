"""Conjugate PL: the loss that belongs to the source's own training loss.

Goyal et al., "Test-time Adaptation via Conjugate Pseudo-labels", NeurIPS 2022; here continual, never reset.

    conjugate_label   y solves (I + eps diag(p) - eps p p^T) y = p, for a source trained with PolyLoss of that eps
    conjugate_loss    logsumexp(h) - sum_k (y_k h_k - eps y_k (1 - p_k)), averaged over the batch
    learns            weight and bias of every norm layer, with batch statistics
    returns           a second pass, after the update, as the released code does

With eps = 0, a source trained with cross-entropy, the label is the prediction and the loss is its entropy.

Departures: the system is solved in closed form. As in the released code, the temperature divides the logits of label
and loss alike, and gradients flow through the label. The released code knows BatchNorm2d only; all norm layers learn
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ctta.base.config import setting
from ctta.core.adapter import Adapter, Step
from ctta.core.networks import norm_parameters
from ctta.core.settings import Normalization, OptimizerSettings, Presets, Traits, same_presets


@dataclass(frozen=True)
class ConjugatePLConfig(Normalization, OptimizerSettings):
    """Settings of Conjugate PL."""

    epsilon: float = setting(
        0.0,
        "The source's training loss: 0 for cross-entropy, else the epsilon of its PolyLoss.",
        symbol="epsilon",
        low=-1.0,
        open_low=True,
    )
    temperature: float = setting(1.0, "Divides the logits.", symbol="T", low=0.0, open_low=True)


class ConjugatePL(Adapter):
    """Minimises the conjugate of the source's training loss."""

    name = "conjugate_pl"
    title = "Conjugate PL"
    traits = Traits("norm parameters", forwards=(2, 2), backwards=(1, 1), answers="after")
    config_type = ConjugatePLConfig
    config: ConjugatePLConfig
    presets: ClassVar[Presets] = same_presets(optimizer="sgd", lr=1e-3)
    needs_norm = True

    def build(self) -> None:
        self.model = self.copy_source()
        self.train_on(norm_parameters(self.model))

    def adapt(self, x: Tensor) -> Step:
        logits = self.run(self.model, x, grad=True) / self.config.temperature
        loss = self.learn(conjugate_loss(logits, self.config.epsilon).mean())
        return Step(self.logits(x), {"loss": loss})


def conjugate_label(probability: Tensor, epsilon: float) -> Tensor:
    """The solution y of (I + eps diag(p) - eps p p^T) y = p, sample by sample."""
    # Sherman and Morrison's formula; 1 - eps p^T D^-1 p is the sum of D^-1 p because p sums to 1.
    label = probability / (1 + epsilon * probability)
    return label / label.sum(1, keepdim=True)


def conjugate_loss(logits: Tensor, epsilon: float) -> Tensor:
    """The training loss at its conjugate label, one value per sample."""
    probability = logits.softmax(1)
    label = conjugate_label(probability, epsilon)
    return logits.logsumexp(1) - (label * logits - epsilon * label * (1 - probability)).sum(1)
