"""SHOT, online: information maximisation and confident labels, with the classifier frozen.

Liang et al., "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised Domain
Adaptation", ICML 2020; here one step per batch, as test-time benchmarks run it.

    confident_loss   cross-entropy with the model's own label, on samples more confident than 0.9
    entropy          each prediction is to be certain
    mean_entropy     all predictions together are to be diverse
    loss             0.3 confident_loss + mean of entropy - mean_entropy
    learns           all parameters but the head's, with batch statistics
    returns          the logits that the loss was computed from (before the update)

Departures: the paper adapts offline and takes its labels from class centroids of the whole target set; online there is
one batch and its confident labels stand in for them. No confident sample: their loss is 0. The frozen head is the last
layer; the paper's own models have a bottleneck before it, which learns. Rates are ours: benchmarks search for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ctta.base.config import setting
from ctta.base.errors import ModelError
from ctta.core.adapter import Adapter, Step
from ctta.core.losses import cross_entropy, entropy, masked_mean
from ctta.core.settings import Features, Normalization, OptimizerSettings, Presets, Traits, same_presets


@dataclass(frozen=True)
class SHOTConfig(Features, Normalization, OptimizerSettings):
    """Settings of SHOT."""

    threshold: float = setting(0.9, "A label counts if its confidence is above this.", low=0.0, high=1.0)
    label_weight: float = setting(0.3, "Weight of the confident labels' loss.", symbol="beta", low=0.0)


class SHOT(Adapter):
    """Information maximisation with a frozen classifier."""

    name = "shot"
    title = "SHOT"
    traits = Traits("features: all parameters but the head", forwards=(1, 1), backwards=(1, 1))
    config_type = SHOTConfig
    config: SHOTConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="sgd", lr=1e-3),
        "imagenet": {"optimizer": "sgd", "lr": 2.5e-4},
    }

    def build(self) -> None:
        self.find_head()
        self.model = self.copy_source()
        frozen = {id(parameter) for parameter in self.model.get_submodule(self.head).parameters()}
        learned = [parameter for parameter in self.model.parameters() if id(parameter) not in frozen]
        if not learned:
            raise ModelError("SHOT learns all but the head, and this model is only a head. Use another method.")
        self.train_on(learned)

    def adapt(self, x: Tensor) -> Step:
        logits = self.run(self.model, x, grad=True)
        loss = self.config.label_weight * confident_loss(logits, self.config.threshold)
        loss = self.learn(loss + entropy(logits).mean() - mean_entropy(logits))
        confidence = logits.detach().softmax(1).amax(1)
        selected = confidence > self.config.threshold
        info = {"loss": loss, "selected": selected.to(x.dtype).mean()}
        return Step(logits, info, {"confidence": confidence, "selected": selected})


def confident_loss(logits: Tensor, threshold: float) -> Tensor:
    """Cross-entropy with the most probable label, for samples above the threshold; 0 if there are none."""
    probability = logits.detach().softmax(1)
    confidence, label = probability.max(1)
    hard = probability.new_zeros(probability.shape).scatter_(1, label[:, None], 1.0)
    return masked_mean(cross_entropy(hard, logits), confidence > threshold)


def mean_entropy(logits: Tensor) -> Tensor:
    """Entropy of the batch's mean probability: large if the predictions are diverse."""
    mean = logits.softmax(1).mean(0)
    return -(mean * (mean + 1e-5).log()).sum()
