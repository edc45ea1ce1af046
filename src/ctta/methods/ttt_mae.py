"""TTT-MAE: per image, an encoder learns to reconstruct the image from a quarter of its patches; then it is forgotten.

Gandelsman et al., "Test-Time Training with Masked Autoencoders", NeurIPS 2022.

    reconstruction   mean squared error of the hidden patches, each normalised, `core.masking`
    steps            20, each with 128 random masks of the image; SGD with momentum 0.9
    learns           the encoder; decoder and head stay as they are
    returns          the prediction for the whole image (after the last step); the next image starts at the source again

The model is a `core.masking.MaskedAutoencoder`: an encoder, a decoder and a head. `vit_mae` is a small one that `ctta
train` can make. Any other classifier has no decoder, and then the task is another, which is ours: all parameters but
the head learn to give the source's prediction for the whole image from a part of it.

Departures: the paper's encoder is trained as an autoencoder first, and its head afterwards, on frozen features; `ctta
train` trains all three together. Its small images are ours, with 4 steps of 16 masks at rate 0.005.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.base.errors import ModelError
from ctta.base.limits import ITERATIONS, SIDE, VIEWS
from ctta.core.adapter import Adapter, Step, log
from ctta.core.losses import cross_entropy
from ctta.core.masking import MaskedAutoencoder, hide, random_patches
from ctta.core.networks import Normalized
from ctta.core.settings import Features, Normalization, OptimizerSettings, Presets, Traits, same_presets


@dataclass(frozen=True)
class TTTMAEConfig(Features, Normalization, OptimizerSettings):
    """Settings of TTT-MAE."""

    statistics: Literal["batch", "mixed", "running", "robust", "instance", "auto"] = setting(
        "mixed", "Statistics of BatchNorm layers, as for every method; a batch is the masked copies of one image."
    )
    batch_weight: float = setting(1 / 17, "Weight of the copies in mixed statistics.", low=0.0, high=1.0)
    nesterov: bool = setting(False, "Nesterov momentum; only for SGD.")
    steps: int = setting(20, "Steps per image.", low=1, high=ITERATIONS)
    masks: int = setting(128, "Random masks per step.", low=1, high=VIEWS)
    kept: float = setting(0.25, "Share of the patches that is not hidden.", low=0.0, high=1.0)
    patch: int = setting(4, "Pixels per side of a patch, for a model that is no masked autoencoder.", low=1, high=SIDE)


class TTTMAE(Adapter):
    """Adapts the encoder to each image alone, by reconstructing it."""

    name = "ttt_mae"
    title = "TTT-MAE"
    traits = Traits(
        "features: all parameters but the head", forwards=(66, 66), backwards=(4, 4), answers="after", episodic=True
    )
    whole_batches = False
    config_type = TTTMAEConfig
    config: TTTMAEConfig
    presets: ClassVar[Presets] = {
        **same_presets(optimizer="sgd", lr=0.005, steps=4, masks=16),  # ours: the paper has large images only
        "imagenet": {"optimizer": "sgd", "lr": 0.005, "patch": 16},
    }

    def build(self) -> None:
        self.model = self.copy_source()
        if (autoencoder := self.autoencoder()) is not None:
            self.train_on(autoencoder.encoder.parameters())
            return
        self.find_head()
        frozen = {id(parameter) for parameter in self.model.get_submodule(self.head).parameters()}
        learned = [parameter for parameter in self.model.parameters() if id(parameter) not in frozen]
        if not learned:
            raise ModelError("TTT-MAE learns all but the head, and this model is only a head. Use another method.")
        self.train_on(learned)

    def review(self) -> None:
        if self.autoencoder() is None:
            log.warning(
                "ttt_mae: the model is no masked autoencoder, so there is nothing to reconstruct with. It learns to "
                "predict from a part of an image what the source predicts from all of it: not the paper's task."
            )

    def autoencoder(self) -> MaskedAutoencoder | None:
        """The triple inside the model, if it is one."""
        inside = self.model
        while isinstance(inside, Normalized):
            inside = inside.model
        return inside if isinstance(inside, MaskedAutoencoder) else None

    def adapt(self, x: Tensor) -> Step:
        answers, losses = [], []
        for image in x[:, None]:
            target = self.run(self.source_model, image).softmax(1)
            copies = image.expand(self.config.masks, *image.shape[1:])
            for _ in range(self.config.steps):
                loss = self.learn(self.task(copies, target))
            losses.append(loss)
            answers.append(self.run(self.model, image))
            self.forget()
        return Step(torch.cat(answers), {"loss": torch.stack(losses).mean()})

    def task(self, copies: Tensor, target: Tensor) -> Tensor:
        """The loss of one step: of the reconstruction, or of the prediction from a part, (1, C)."""
        autoencoder = self.autoencoder()
        if autoencoder is None:
            part = hide(copies, self.config.patch, self.config.kept, self.random)
            return cross_entropy(target, self.run(self.model, part, grad=True)).mean()
        total = (copies.shape[2] // autoencoder.patch) * (copies.shape[3] // autoencoder.patch)
        keep = random_patches(len(copies), total, self.config.kept, self.random)
        return self.run_part(lambda seen: autoencoder.reconstruction_loss(self.normalized(seen), keep), copies).mean()

    def normalized(self, x: Tensor) -> Tensor:
        """What the autoencoder sees of an image."""
        inside = self.model
        while isinstance(inside, Normalized):
            x, inside = inside.normalize(x), inside.model
        return x
