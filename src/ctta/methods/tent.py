"""TENT: entropy minimisation on norm parameters.

Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021; here continual, never reset.

    entropy   H(p) = -sum_c p_c log p_c, averaged over the batch
    learns    weight and bias of every norm layer, with batch statistics
    returns   the logits that the loss was computed from (before the update)

Departures: the released code knows only BatchNorm2d; all norm layers learn here. It runs with dropout on, ours without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ctta.core.adapter import Adapter, Step
from ctta.core.losses import entropy
from ctta.core.networks import norm_parameters
from ctta.core.settings import Normalization, OptimizerSettings, Presets, Traits, same_presets


@dataclass(frozen=True)
class TENTConfig(Normalization, OptimizerSettings):
    """Settings of TENT."""


class TENT(Adapter):
    """Makes the model confident in its predictions."""

    name = "tent"
    title = "TENT"
    traits = Traits("norm parameters", forwards=(1, 1), backwards=(1, 1))
    config_type = TENTConfig
    config: TENTConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3),
        "imagenet": {"optimizer": "sgd", "lr": 2.5e-4},
    }
    needs_norm = True

    def build(self) -> None:
        self.model = self.copy_source()
        self.train_on(norm_parameters(self.model))

    def adapt(self, x: Tensor) -> Step:
        logits = self.run(self.model, x, grad=True)
        loss = self.learn(entropy(logits).mean())
        return Step(logits, {"loss": loss})
