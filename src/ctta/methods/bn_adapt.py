"""BN Adapt: batch statistics, nothing trained.

Li et al., "Revisiting Batch Normalization for Practical Domain Adaptation", 2016.
Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", NeurIPS 2020.

    statistics = (1 - alpha) source + alpha batch

Departures: the variance of the batch is the biased one for every alpha, so that alpha = 1 is a layer in training mode;
public code mixes in the unbiased one, larger by n / (n - 1) for n values per channel. Schneider et al. write alpha as
N / (N + prior).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ctta.base.config import setting
from ctta.core.adapter import Adapter, Step, log
from ctta.core.settings import Normalization, Traits


@dataclass(frozen=True)
class BNAdaptConfig(Normalization):
    """Settings of BN Adapt."""

    statistics: Literal["batch", "mixed", "running", "robust", "instance", "auto"] = setting(
        "mixed",
        "Only the batch's statistics; mixed with the source's by batch_weight; a running average with that step, or "
        "RoTTA's (robust); the source's corrected per sample (instance); or auto: mixed per layer by how far the batch "
        "has shifted.",
    )
    batch_weight: float = setting(
        1.0, "Weight of the batch in the statistics.", symbol="alpha", low=0.0, high=1.0, was="alpha"
    )


class BNAdapt(Adapter):
    """Normalises with the statistics of the stream."""

    name = "bn_adapt"
    title = "BN Adapt"
    traits = Traits("nothing", forwards=(1, 1), backwards=(0, 0))
    config_type = BNAdaptConfig
    config: BNAdaptConfig
    needs_norm = True

    def review(self) -> None:
        if not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in self.source_model.modules()):
            log.warning(
                "bn_adapt: the model has no BatchNorm layer, so there is nothing to adapt; it predicts as the source."
            )

    def adapt(self, x: Tensor) -> Step:
        return Step(self.run(self.source_model, x))
