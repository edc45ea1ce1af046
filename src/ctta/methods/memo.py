"""MEMO: per image, one step to lower the entropy of the mean prediction over augmented views; then forgotten.

Zhang et al., "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS 2022.

    Eq. 2, 3  marginal_entropy   H(mean over views of p(view x))
    step      plain SGD from the source's weights, all parameters; one per image
    returns   the logits of the un-augmented image (after the update); the next image starts at the source again
    views     32 of AugMix's (64 on ImageNet), `core.views.augmix`
    BatchNorm 16/17 source + 1/17 of the views' statistics, which are constants to the gradient

Images of a batch do not meet: each has its own weights, and so its own passes. A batch of N costs N backward passes.

Departures: BatchNorm statistics are the paper's for ImageNet in all presets; its CIFAR model has GroupNorm, and its
code for CIFAR leaves a BatchNorm model with the source's, which is `batch_weight=0`. A public benchmark runs
`batch_weight=0.1, nesterov=True`; for some networks the authors take AdamW. Large images are cropped as small ones are,
by an eighth; the released code crops and resizes them. Point clouds have their own views. `predict`, which learns
nothing, answers with the source's weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.base.limits import VIEWS
from ctta.core.adapter import Adapter, Step
from ctta.core.losses import averaged
from ctta.core.settings import Augmentation, Normalization, OptimizerSettings, Presets, Traits, same_presets
from ctta.core.statistics import make_constant


@dataclass(frozen=True)
class MEMOConfig(Augmentation, Normalization, OptimizerSettings):
    """Settings of MEMO."""

    draw: Literal["batch", "sample"] = setting("sample", "One random augmentation for all views of an image, or each.")
    statistics: Literal["batch", "mixed", "running", "robust", "instance", "auto"] = setting(
        "mixed", "Statistics of BatchNorm layers, as for every method; a batch is the views of one image."
    )
    batch_weight: float = setting(1 / 17, "Weight of the views in mixed statistics.", low=0.0, high=1.0)
    nesterov: bool = setting(False, "Nesterov momentum; a single step without it is plain SGD.")
    views: int = setting(32, "Augmented views per image.", low=1, high=VIEWS)


class MEMO(Adapter):
    """Adapts to each image alone."""

    name = "memo"
    title = "MEMO"
    traits = Traits("all parameters", forwards=(33, 33), backwards=(1, 1), answers="after", episodic=True)
    whole_batches = False
    config_type = MEMOConfig
    config: MEMOConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="sgd", lr=0.005),
        "imagenet": {"optimizer": "sgd", "lr": 2.5e-4, "views": 64},
    }

    def build(self) -> None:
        self.model = self.copy_source()
        make_constant(self.model)
        self.train_on(self.model.parameters())

    def adapt(self, x: Tensor) -> Step:
        answers, losses = [], []
        for image in x[:, None]:
            copies = image.expand(self.config.views, *image.shape[1:])
            (views,) = self.make_views(copies, kind="augmix")
            losses.append(self.learn(marginal_entropy(self.run(self.model, views, grad=True))))
            answers.append(self.run(self.model, image))
            self.forget()
        return Step(torch.cat(answers), {"loss": torch.stack(losses).mean()})


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean probability over views, (V, C)."""
    mean = averaged(logits)
    mean = mean.clamp(min=torch.finfo(mean.dtype).min)
    return -(mean.exp() * mean).sum()
