"""DeYO: entropy minimisation on samples whose label depends on the shape of the object, not only on its texture.

Lee et al., "Entropy is not Enough for Test-Time Adaptation: From the Perspective of Disentangled Factors", ICLR 2024.

    destroyed     x', the object without its shape: 4 x 4 patches in random order, another one per image
    Eq. 5   plpd  p_y(x) - p_y(x'), y the model's own label: how much the label needs the shape
    Eq. 6   samples with H < 0.5 ln C and plpd > 0.2 are kept
    Eq. 7   weight      exp(0.4 ln C - H) + exp(plpd), detached
    Eq. 8   weighted mean of the entropy over the samples kept; no step if there are none
    learns  weight and bias of the norm layers outside `frozen`, with batch statistics
    returns the logits that the loss was computed from (before the update)

x' is made of the samples with low entropy only, so it has their batch statistics, as in the released code.

Departures: the paper does not train the last stage; `frozen` has the names of the released code, as SAR's. Rates for
CIFAR are those of a public benchmark. The preset for ImageNet has the authors' rate for ResNets, 2.5e-4, which they
multiply by N / 32 for batches of N < 32; for ViTs they have 1e-3 N / 64. Their script for ResNet-50 with BatchNorm has
tau_PLPD 0.3; 0.2 is the default of their code. SGD has no
Nesterov momentum, as theirs; the benchmark's has. Their code runs with dropout on, ours without. If a single sample has
low entropy, one more goes through the second pass, so that there are batch statistics. Point clouds have no patches:
each coordinate is shuffled among the points, which is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.config import setting
from ctta.base.errors import InputError
from ctta.base.randomness import Randomness
from ctta.core.adapter import Step
from ctta.core.losses import entropy, masked_mean
from ctta.core.selection import first_nonzero
from ctta.core.settings import Normalization, OptimizerSettings, Presets, Traits, same_presets
from ctta.core.stages import LAST_STAGES, FrozenStages, StageAdapter

Destruction = Literal["patch", "pixel", "occlusion"]


@dataclass(frozen=True)
class DeYOConfig(FrozenStages, Normalization, OptimizerSettings):
    """Settings of DeYO."""

    nesterov: bool = setting(False, "Nesterov momentum; only for SGD.")
    margin: float = setting(
        0.5, "A sample is reliable if its entropy is below this fraction of ln C.", symbol="tau_Ent", low=0.0, high=1.0
    )
    scale: float = setting(
        0.4, "Entropy at which a weight by entropy is 1, as a fraction of ln C.", symbol="Ent_0", low=0.0, high=1.0
    )
    plpd: float = setting(
        0.2, "A sample is kept if its label loses more probability than this.", symbol="tau_PLPD", low=-1.0, high=1.0
    )
    destroy: Destruction = setting(  # noqa: RUF009
        "patch", "How the shape is destroyed: patches or pixels in random order, or a covered middle."
    )
    patches: int = setting(4, "Patches per side.", low=1, high=1000)


class DeYO(StageAdapter):
    """TENT on samples whose label needs the object's shape."""

    name = "deyo"
    title = "DeYO"
    traits = Traits("norm parameters", forwards=(1, 2), backwards=(1, 1))
    config_type = DeYOConfig
    config: DeYOConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="adam", lr=1e-3, frozen=LAST_STAGES),
        "imagenet": {"optimizer": "sgd", "lr": 2.5e-4, "frozen": LAST_STAGES},
    }

    def observe(self, x: Tensor) -> Mapping[str, Tensor]:
        """The prediction with its graph, and how many samples have low entropy."""
        logits = self.run(self.model, x, grad=True)
        return {"logits": logits, "count": (entropy(logits) < self.config.margin * math.log(self.classes)).sum()}

    def adapt(self, x: Tensor) -> Step:
        config, logits = self.config, self.observed["logits"]
        uncertainty = entropy(logits)
        reliable, loss_of_label = uncertainty < config.margin * math.log(self.classes), torch.zeros_like(uncertainty)
        if count := int(self.observed["count"]):
            kept = first_nonzero(reliable, max(count, 2))
            shapeless = self.run(self.model, self.destroyed(x[kept]))
            loss_of_label[kept] = plpd(logits.detach()[kept], shapeless)
        kept = reliable & (loss_of_label > config.plpd)
        weight = sample_weight(uncertainty, loss_of_label, config.scale * math.log(self.classes))
        loss = self.learn(masked_mean(weight * uncertainty, kept), skip=~kept.any())
        return Step(logits, {"loss": loss, "selected": kept.to(x.dtype).mean()}, {"selected": kept})

    def destroyed(self, x: Tensor) -> Tensor:
        """The samples without their shape."""
        return destroy(x, self.config.destroy, self.config.patches, self.random)


def plpd(logits: Tensor, shapeless: Tensor) -> Tensor:
    """Eq. 5: the probability that a sample's label loses if the shape is destroyed, (N,)."""
    label = logits.argmax(1, keepdim=True)
    return (logits.softmax(1) - shapeless.softmax(1)).gather(1, label)[:, 0]


def sample_weight(uncertainty: Tensor, loss_of_label: Tensor, scale: float) -> Tensor:
    """Eq. 7: heavier the surer, and the more the label needs the shape; no gradient flows through it."""
    return (scale - uncertainty.detach()).exp() + loss_of_label.exp()


def destroy(x: Tensor, how: Destruction, patches: int, random: Randomness) -> Tensor:
    """Images, (N, C, H, W), or point clouds, (N, P, 3), without the object's shape."""
    if x.dim() == 3:
        order = torch.rand(x.shape, dtype=torch.float32, generator=random.device, device=x.device).argsort(1)
        return x.gather(1, order)
    if x.dim() != 4:
        raise InputError(
            f"DeYO destroys the shape of images, (N, C, H, W), or point clouds, (N, P, 3). Got {tuple(x.shape)}."
        )
    match how:
        case "patch":
            return shuffled_patches(x, patches, random)
        case "pixel":
            order = torch.rand(x[0, 0].numel(), dtype=torch.float32, generator=random.device, device=x.device).argsort()
            return x.flatten(2)[:, :, order].view_as(x)
        case "occlusion":
            return covered_middle(x)


def shuffled_patches(x: Tensor, patches: int, random: Randomness) -> Tensor:
    """Each image cut into patches x patches, in another random order; resized for it, if its size has no such parts."""
    size = x.shape[2:]
    height, width = (max(side // patches, 1) for side in size)
    x = resized(x, (height * patches, width * patches))
    n, channels = x.shape[:2]
    parts = x.view(n, channels, patches, height, patches, width).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.rand(n, patches**2, dtype=torch.float32, generator=random.device, device=x.device).argsort(1)
    parts = parts[torch.arange(n, device=x.device)[:, None], order].view(n, patches, patches, channels, height, width)
    return resized(parts.permute(0, 3, 1, 4, 2, 5).reshape(x.shape), size)


def resized(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """Images of this size."""
    return x if x.shape[2:] == size else F.interpolate(x, size, mode="bilinear", antialias=True)


def covered_middle(x: Tensor) -> Tensor:
    """Images with a square of their mean colour over the middle, half as large as they are."""
    height, width = x.shape[2:]
    x = x.clone()
    inside = x[:, :, height // 4 : height // 4 + (height + 1) // 2, width // 4 : width // 4 + (width + 1) // 2]
    inside.copy_(x.mean((2, 3), keepdim=True).expand_as(inside))
    return x
