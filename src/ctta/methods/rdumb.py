"""RDumb: ETA that starts again from the source every so many batches.

Press et al., "RDumb: A simple approach that questions our progress in continual test-time adaptation", NeurIPS 2023.

    reset     before batches T, 2T, 3T ... of the stream, counted from 0: weights, optimiser and average prediction
    the rest  ETA's

Departures: those of ETA. The released code is for ImageNet only. Its first version had E0 = ln(1000) / 2 - 1; since
August 2023 it has 0.4 ln 1000, which is ETA's 0.4 ln C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ctta.base.config import setting
from ctta.core.adapter import Step
from ctta.core.settings import Presets, Traits
from ctta.methods.eta import ETA, ETAConfig


@dataclass(frozen=True)
class RDumbConfig(ETAConfig):
    """Settings of RDumb."""

    reset_every: int = setting(1000, "Batches between two resets.", symbol="T", low=1)


class RDumb(ETA):
    """ETA, reset to the source every `reset_every` batches."""

    name = "rdumb"
    title = "RDumb"
    traits = Traits("norm parameters", forwards=(1, 1), backwards=(1, 1))
    config_type = RDumbConfig
    config: RDumbConfig
    presets: ClassVar[Presets] = {
        **ETA.presets,
        "cifar100": {**ETA.presets["cifar100"], "similarity": 0.4},
    }

    def adapt(self, x: Tensor) -> Step:
        if self.batches and self.batches % self.config.reset_every == 0:
            self.restore_source()
            self.average.zero_()
        return super().adapt(x)
