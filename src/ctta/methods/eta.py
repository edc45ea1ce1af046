"""ETA: entropy minimisation on samples that are reliable and not redundant; EATA without its anchor to the source.

Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.

    Eq. 3   entropy_weight   exp(E0 - H), detached, for reliable samples: those with H < E0 = 0.4 ln C
    Eq. 4   follow           m <- 0.9 m + 0.1 mean p of the samples kept; their mean in the first batch that keeps any
    Eq. 5   unlike           |cos(m, p)| < epsilon: the sample is not redundant
    Eq. 6   weighted mean of the entropy over the samples kept, `ETA.objective`
    learns  weight and bias of every norm layer, with batch statistics; no step if no sample is kept
    returns the logits that the loss was computed from (before the update)

Departures: C is the model's own. As in the released code, Eq. 6 divides by the number of samples kept, not by the batch
size, and nothing is redundant until there is an average. The released code knows BatchNorm2d only; all norm layers
learn here. It runs with dropout on, ours without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ctta.base.config import setting
from ctta.core.adapter import Adapter, Step
from ctta.core.losses import entropy, masked_mean
from ctta.core.networks import norm_parameters
from ctta.core.settings import Normalization, OptimizerSettings, Presets, Traits


@dataclass(frozen=True)
class ETAConfig(Normalization, OptimizerSettings):
    """Settings of ETA."""

    nesterov: bool = setting(False, "Nesterov momentum; for SGD only.")
    margin: float = setting(
        0.4, "A sample is reliable if its entropy is below this fraction of ln C.", symbol="E_0", low=0.0, high=1.0
    )
    similarity: float = setting(
        0.4,
        "A sample is new if its cosine with the average prediction is below this.",
        symbol="epsilon",
        low=0.0,
        open_low=True,
    )
    ema: float = setting(0.9, "Decay of the moving average of the predictions.", low=0.0, high=1.0)


class ETA(Adapter):
    """Entropy minimisation on reliable, non-redundant samples."""

    name = "eta"
    title = "ETA"
    traits = Traits("norm parameters", forwards=(1, 1), backwards=(1, 1))
    config_type = ETAConfig
    config: ETAConfig
    presets: ClassVar[Presets] = {
        "cifar10": {"optimizer": "adam", "lr": 1e-3, "similarity": 0.4},
        "cifar100": {"optimizer": "adam", "lr": 1e-3, "similarity": 0.1},
        "imagenet": {"optimizer": "sgd", "lr": 2.5e-4, "similarity": 0.05},
        "clouds": {"optimizer": "adam", "lr": 1e-3, "similarity": 0.4},  # ours: the paper has none
    }
    needs_norm = True
    average: Tensor  # (C,), of the predictions; all 0 until a sample has been kept

    def build(self) -> None:
        self.model = self.copy_source()
        self.train_on(norm_parameters(self.model))
        device, dtype = self.placement
        self.register_buffer("average", torch.zeros(self.classes, device=device, dtype=dtype))

    def adapt(self, x: Tensor) -> Step:
        limit = self.config.margin * math.log(self.classes)
        logits = self.run(self.model, x, grad=True)
        uncertainty, probability = entropy(logits), logits.detach().softmax(1)
        kept = (uncertainty < limit) & unlike(self.average, probability, self.config.similarity)
        loss = self.learn(self.objective(uncertainty, kept, limit), skip=~kept.any())
        self.average.copy_(follow(self.average, probability, kept, self.config.ema))
        return Step(logits, {"loss": loss, "selected": kept.to(x.dtype).mean()}, {"selected": kept})

    def objective(self, uncertainty: Tensor, kept: Tensor, limit: float) -> Tensor:
        """What is minimised."""
        return masked_mean(entropy_weight(uncertainty, limit) * uncertainty, kept)


def entropy_weight(uncertainty: Tensor, limit: float) -> Tensor:
    """Eq. 3: the surer, the heavier; no gradient flows through it."""
    return (limit - uncertainty.detach()).exp()


def unlike(average: Tensor, probability: Tensor, similarity: float) -> Tensor:
    """Eq. 5: whether each prediction differs from the average one. All do from an average that is still 0."""
    return functional.cosine_similarity(average[None], probability, dim=1).abs() < similarity


def follow(average: Tensor, probability: Tensor, kept: Tensor, ema: float) -> Tensor:
    """Eq. 4: the average prediction follows the samples kept; it stays where it is if there are none."""
    # Not by a product: a prediction that is not finite is never kept, and 0 times NaN would be.
    total = torch.where(kept[:, None], probability, 0).sum(0)
    mean = total / kept.sum().clamp(min=1)
    moved = torch.where(average.any(), ema * average + (1 - ema) * mean, mean)
    return torch.where(kept.any(), moved, average)
