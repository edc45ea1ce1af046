"""ROID: weighted self-training of norm parameters that never goes far from the source.

Marsden et al., "Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior Correction",
WACV 2024.

    diversity          1 - cos(p, p_mean); p_mean follows the batches' mean probability, 0.9
    certainty          -H(p)
    sample_weight      exp(diversity certainty / (1/3)), both scaled to 0 ... 1; 0 for diversity below its mean
    likelihood_ratio   -sum_c p_c log(p_c / (1 - p_c)), p at most 0.99
    consistency        symmetric cross-entropy of student(view x) and student(x), on the samples that are kept
    weight ensembling  theta <- 0.99 theta + 0.01 theta_source, after the step
    prior_correction   the prediction times the smoothed prior of the batch
    returns            the logits that the loss was computed from (before the update), corrected

Departures: the paper corrects probabilities, the released code logits; `correction` offers both, ours is the code's.
Sums are divided by the size of the batch; the released code divides by the size that batches should have, which differs
if the last one is smaller. All norm layers learn. If a single sample is kept, one more goes through the view's
pass with weight 0, so that there are batch statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.core.adapter import Adapter, Step
from ctta.core.export import Corrected
from ctta.core.losses import consistency, entropy
from ctta.core.networks import norm_parameters
from ctta.core.selection import first_nonzero
from ctta.core.settings import Augmentation, Normalization, OptimizerSettings, Presets, Traits, same_presets

Correction = Literal["logits", "probabilities", "none"]


@dataclass(frozen=True)
class ROIDConfig(Augmentation, Normalization, OptimizerSettings):
    """Settings of ROID."""

    temperature: float = setting(1 / 3, "Sharpness of the sample weights.", symbol="tau", low=0.0, open_low=True)
    momentum: float = setting(
        0.9, "How much of itself the mean probability keeps at each batch.", symbol="beta", low=0.0, high=1.0
    )
    ensemble: float = setting(
        0.99, "How much of themselves weights keep against the source's.", symbol="alpha", low=0.0, high=1.0
    )
    correction: Correction = setting("logits", "What the smoothed prior of the batch is multiplied with.")  # noqa: RUF009


class ROID(Adapter):
    """Learns most from what is certain and unlike the rest, and stays near the source."""

    name = "roid"
    title = "ROID"
    traits = Traits("norm parameters", forwards=(1, 2), backwards=(1, 1))
    config_type = ROIDConfig
    config: ROIDConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3),
        "imagenet": {"optimizer": "sgd", "lr": 2.5e-4},
        "clouds": {"optimizer": "adam", "lr": 1e-3, "draw": "sample"},
    }
    needs_norm = True
    mean_probability: Tensor

    def build(self) -> None:
        self.model = self.copy_source()
        self.train_on(norm_parameters(self.model))
        device, dtype = self.placement
        uniform = torch.full((self.classes,), 1 / self.classes, device=device, dtype=dtype)
        self.register_buffer("mean_probability", uniform)

    def logits(self, x: Tensor) -> Tensor:
        return self.corrected(self.run(self.model, x))

    def corrected(self, logits: Tensor) -> Tensor:
        """The prediction after prior correction."""
        return correct(logits, smoothed_prior(logits), self.config.correction)

    def finish(self, network: nn.Module, x: Tensor | None) -> nn.Module:
        """The network with the prior of the batch, frozen."""
        if self.config.correction == "none":
            return network
        if x is None:
            raise InputError("ROID corrects by the prior of the batch. Give one, whose prior is frozen: export(x).")
        with torch.no_grad():
            return Corrected(network, ByPrior(smoothed_prior(network(x)), self.config.correction))

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        """The prediction with its graph, the weight of each sample, and how many have one."""
        logits = self.run(self.model, x, grad=True)
        with torch.no_grad():
            unlike = diversity(logits.softmax(1).to(x.dtype), self.mean_probability)
            weight = sample_weight(unlike, -entropy(logits), self.config.temperature)
        return {"logits": logits, "weight": weight, "count": (weight != 0).sum()}

    def adapt(self, x: Tensor) -> Step:
        logits, weight = self.observed["logits"], self.observed["weight"]
        kept = first_nonzero(weight, max(int(self.observed["count"]), 2))
        probability = logits.detach().softmax(1).to(x.dtype)
        self.mean_probability.copy_(torch.lerp(probability.mean(0), self.mean_probability, self.config.momentum))

        (view,) = self.make_views(x[kept], kind="clean")
        ratio = weight * likelihood_ratio(logits)
        agreement = weight[kept] * consistency(logits[kept], self.run(self.model, view, grad=True), symmetric=True)
        loss = self.learn((ratio.sum() + agreement.sum()) / len(x))
        self.ensemble()

        selected = weight > 0
        info = {"loss": loss, "selected": selected.to(x.dtype).mean()}
        return Step(self.corrected(logits), info, {"selected": selected, "confidence": probability.amax(1)})

    def ensemble(self) -> None:
        """Weights move back towards the source's."""
        self.follow(norm_parameters(self.model), norm_parameters(self.source_model), self.config.ensemble)


class ByPrior(nn.Module):
    """Prior correction by a prior that no longer changes; a module, so that the prior moves with its network."""

    prior: Tensor

    def __init__(self, prior: Tensor, correction: Correction) -> None:
        super().__init__()
        self.correction = correction
        self.register_buffer("prior", prior)

    def forward(self, logits: Tensor) -> Tensor:
        return correct(logits, self.prior, self.correction)


def correct(logits: Tensor, prior: Tensor, correction: Correction) -> Tensor:
    """The prediction times a prior (C,), as logits or as probabilities."""
    match correction:
        case "logits":
            return logits * prior
        case "probabilities":
            return logits.log_softmax(1) + prior.log()
        case "none":
            return logits


def diversity(probability: Tensor, mean: Tensor) -> Tensor:
    """How unlike the stream's mean probability (C,) each sample's is, (N,)."""
    return 1 - F.cosine_similarity(probability, mean[None], dim=1)


def scaled(values: Tensor) -> Tensor:
    """From 0 for the smallest to 1 for the largest; 0 if all are equal."""
    low, high = values.aminmax()
    return (values - low) / (high - low).clamp(min=torch.finfo(values.dtype).tiny)


def sample_weight(diversity: Tensor, certainty: Tensor, temperature: float) -> Tensor:
    """Large for samples that are both certain and unlike the rest, 0 if diversity is below its mean."""
    diversity = scaled(diversity)
    weight = torch.exp(diversity * scaled(certainty) / temperature)
    return weight * (diversity >= diversity.mean())


def likelihood_ratio(logits: Tensor) -> Tensor:
    """Soft likelihood ratio: like entropy, with a gradient that does not fade if the model is confident."""
    probability = logits.softmax(1).clamp(max=0.99)
    return -(probability * (probability / (1 - probability) + 1e-5).log()).sum(1)


def smoothed_prior(logits: Tensor) -> Tensor:
    """The batch's mean probability, drawn towards uniform the more, the fewer samples or the flatter it is, (C,)."""
    samples, classes = logits.shape
    prior = logits.softmax(1).mean(0)
    smoothing = max(1 / samples, 1 / classes) / prior.max()
    return (prior + smoothing) / (1 + smoothing * classes)
