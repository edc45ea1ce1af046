"""EATA: ETA with parameters held to the source, the more the source's predictions depend on them.

Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.

    Eq. 8   ETA's loss + beta R, `EATA.objective`
    Eq. 8   forgetting   R = sum_i F_i (theta_i - theta_i of the source)^2
    Eq. 9   F, the diagonal Fisher information: mean over batches of source images of the squared gradient of the
            cross-entropy with the model's own hard predictions, with batch statistics, `EATA.study`

The images need no labels, but they must be of the source: `prepare(source)` comes before the stream, so EATA is not
source-free.

Departures: those of ETA. As in the released code, gradients are squared per batch, not per sample, so F depends on the
batch size of the source data; the last batch counts like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.core.networks import norm_parameters
from ctta.core.settings import Presets, Traits
from ctta.methods.eta import ETA, ETAConfig


@dataclass(frozen=True)
class EATAConfig(ETAConfig):
    """Settings of EATA."""

    anchor: float = setting(1.0, "Weight of the term that holds the model to the source.", symbol="beta", low=0.0)
    fisher_images: int = setting(2000, "How many source images the Fisher information is taken from.", low=1)


class EATA(ETA):
    """ETA with a Fisher penalty on the distance from the source."""

    name = "eata"
    title = "EATA"
    traits = Traits("norm parameters", forwards=(1, 1), backwards=(1, 1), source="statistics")
    config_type = EATAConfig
    config: EATAConfig
    presets: ClassVar[Presets] = {
        "cifar10": {**ETA.presets["cifar10"], "anchor": 1.0},
        "cifar100": {**ETA.presets["cifar100"], "anchor": 1.0},
        "imagenet": {**ETA.presets["imagenet"], "anchor": 2000.0},
        "clouds": {**ETA.presets["clouds"], "anchor": 1.0},  # ours: the paper has none
    }
    source_fisher: Tensor  # one value per trained scalar, flattened

    def build(self) -> None:
        super().build()
        self.register_buffer("source_fisher", torch.zeros_like(flat(self.trained)))

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        squares, batches, images = torch.zeros_like(self.source_fisher), 0, 0
        for batch, _ in source:
            x = batch[: self.config.fisher_images - images]
            logits = self.run(self.model, x, grad=True)
            self.differentiate(functional.cross_entropy(logits, logits.detach().argmax(1)))
            squares += flat([torch.zeros_like(p) if p.grad is None else p.grad for p in self.trained]).square()
            batches, images = batches + 1, images + len(x)
            if images == self.config.fisher_images:
                break
        if not batches:
            raise InputError("The Fisher information is taken from source images and there were none.")
        for parameter in self.trained:
            parameter.grad = None
        self.source_fisher.copy_(squares / batches)

    def objective(self, uncertainty: Tensor, kept: Tensor, limit: float) -> Tensor:
        drift = forgetting(self.trained, norm_parameters(self.source_model), self.source_fisher)
        return super().objective(uncertainty, kept, limit) + self.config.anchor * drift


def forgetting(parameters: Sequence[Tensor], source: Sequence[Tensor], fisher: Tensor) -> Tensor:
    """Eq. 8: how far the parameters are from the source, each weighted by its Fisher information."""
    return (fisher * (flat(parameters) - flat(source)).square()).sum()


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All values in one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors])
