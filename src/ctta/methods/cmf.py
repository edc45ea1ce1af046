"""CMF: ROID that is held to a filtered average of its own weights, which is held to the source.

Lee and Chang, "Continual Momentum Filtering on Parameter Space for Online Test-time Adaptation", ICLR 2024.

    predict   h <- 0.99 h + 0.01 source; v <- 0.99^2 v + q
    update    filter_weight  beta = r / (v + r), r = 1 - q, at least 0.89; v <- beta v; h <- beta h + (1 - beta) theta
    ensemble  theta <- 0.99 theta + 0.01 h
    q         0.005 per 38,400 parameters that learn
    the rest  ROID's: losses, weights of samples and prior correction

h are the hidden weights, v their variance; they start at the source and at 0. ROID is the case h = source.

Departures: those of ROID. As in the released code, beta counts as 1 from 0.9999 on. q is at most 1: with more than
7,680,000 learning parameters r would be negative; beta is 0.89 either way. The authors' code runs in half precision,
ours in the model's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.core.networks import interpolate, norm_parameters
from ctta.core.settings import Traits
from ctta.methods.roid import ROID, ROIDConfig

COUNTED = 38_400  # parameters for which q is as it is set
LEAST, WHOLE = 0.89, 0.9999  # beta is at least the first, and 1 from the second on


@dataclass(frozen=True)
class CMFConfig(ROIDConfig):
    """Settings of CMF."""

    recall: float = setting(
        0.99, "How much of themselves hidden weights keep against the source's.", symbol="alpha", low=0.0, high=1.0
    )
    ensemble: float = setting(
        0.99, "How much of themselves weights keep against the hidden ones.", symbol="gamma", low=0.0, high=1.0
    )
    noise: float = setting(0.005, "Variance that a batch adds, per 38,400 learning parameters.", symbol="q", low=0.0)


class CMF(ROID):
    """ROID with a Kalman filter of its weights."""

    name = "cmf"
    title = "CMF"
    traits = Traits("norm parameters", forwards=(1, 2), backwards=(1, 1))
    config_type = CMFConfig
    config: CMFConfig
    presets = ROID.presets
    variance: Tensor

    def build(self) -> None:
        super().build()
        self.hidden = self.copy_source()
        device, dtype = self.placement
        self.register_buffer("variance", torch.zeros((), device=device, dtype=dtype))

    def restore_source(self) -> None:
        """As for every method; the hidden weights are as certain again as at the start."""
        super().restore_source()
        self.variance.zero_()

    def ensemble(self) -> None:
        """The hidden weights follow; the weights move back towards them."""
        own, hidden, source = (norm_parameters(each) for each in (self.model, self.hidden, self.source_model))
        noise = min(self.config.noise * sum(parameter.numel() for parameter in self.trained) / COUNTED, 1.0)
        self.follow(hidden, source, self.config.recall)
        variance = self.config.recall**2 * self.variance + noise
        keep = filter_weight(variance, noise)
        self.variance.copy_(keep * variance)
        interpolate(hidden, own, 1 - keep)
        self.follow(own, hidden, self.config.ensemble)


def filter_weight(variance: Tensor, noise: float) -> Tensor:
    """beta: how much of themselves hidden weights keep, the less the more uncertain they are, 0-d."""
    beta = ((1 - noise) / (variance + 1 - noise)).clamp(min=LEAST)
    return torch.where(beta >= WHOLE, 1.0, beta)
