"""TTT, online: the features learn to tell by which quarter turn each image was rotated.

Sun et al., "Test-Time Training with Self-Supervision for Generalization under Distribution Shifts", ICML 2020.

    quarter_turns    the four rotations of each image, `core.rotation`
    rotation loss    cross-entropy of a second head, which sees the same features as the classifier
    learns           all parameters but the classifier, and the second head, with batch statistics
    returns          the prediction after the update; nothing is restored

The paper trains both heads together on the source, so that the features serve both: `ctta train` with
`train: {auxiliary: rotation}` does, and `joint=True` takes the head that comes with such a model. Any other model has
no such head: `prepare` trains one on clean images with the features as they are, which is not the paper's method, only
the nearest to it that a finished model allows. It needs no labels, but images of the source.

Departures: the paper branches off after the second of three stages, ours before the last layer, so that every network
can be split. It adapts to each image alone, by 32 randomly cropped and rotated copies; here a batch takes one step
together, by its four rotations. Its SGD has rate 0.001 and no momentum; ours a tenth of it and momentum 0.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ctta.base.config import setting
from ctta.base.errors import InputError, ModelError
from ctta.base.limits import ITERATIONS
from ctta.core.adapter import Adapter, Step
from ctta.core.networks import overwrite
from ctta.core.rotation import TURNS, RotationHead, quarter_turns
from ctta.core.settings import Features, Normalization, OptimizerSettings, Presets, Traits, same_presets

log = logging.getLogger("ctta")

HEAD_RATE = 0.01  # of Adam, with which `prepare` trains the head


@dataclass(frozen=True)
class TTTConfig(Features, Normalization, OptimizerSettings):
    """Settings of TTT."""

    nesterov: bool = setting(False, "Nesterov momentum; only for SGD.")
    joint: bool = setting(False, "Take the rotation head that the model was trained with; no source data are needed.")
    steps: int = setting(1, "Steps per batch.", low=1, high=ITERATIONS)
    head_images: int = setting(2000, "Clean images from which `prepare` trains a head.", low=1)
    head_steps: int = setting(300, "Steps by which it does.", low=1, high=ITERATIONS)


class TTT(Adapter):
    """Adapts the features by a task that needs no labels: to recognise quarter turns."""

    name = "ttt"
    title = "TTT"
    traits = Traits(
        "features and rotation head", forwards=(5, 5), backwards=(1, 1), answers="after", source="statistics"
    )
    config_type = TTTConfig
    config: TTTConfig
    presets: ClassVar[Presets] = same_presets(optimizer="sgd", lr=1e-4)
    source_weight: Tensor
    source_bias: Tensor

    def build(self) -> None:
        width, (device, dtype) = self.find_head(), self.placement
        self.model, self.rotation = self.copy_source(), RotationHead(width).to(device, dtype)
        self.register_buffer("source_weight", torch.zeros(TURNS, width, device=device, dtype=dtype))
        self.register_buffer("source_bias", torch.zeros(TURNS, device=device, dtype=dtype))
        if self.config.joint:
            self._take_head(width)
        frozen = {id(parameter) for parameter in self.model.get_submodule(self.head).parameters()}
        features = [parameter for parameter in self.model.parameters() if id(parameter) not in frozen]
        if not features:
            raise ModelError("TTT learns all but the head, and this model is only a head. Use another method.")
        self.train_on([*features, *self.rotation.parameters()])

    def _take_head(self, width: int) -> None:
        heads = [part for part in self.source_model.modules() if isinstance(part, RotationHead)]
        if not heads or heads[0].weight.shape[1] != width:
            raise ModelError(
                "joint=True takes the model's own rotation head, and this model has none. Train one with it, `ctta "
                "train` with train: {auxiliary: rotation}, or leave joint out and call prepare(source)."
            )
        overwrite((self.source_weight, self.source_bias), (heads[0].weight, heads[0].bias))
        overwrite(self.rotation.parameters(), (self.source_weight, self.source_bias))

    def review(self) -> None:
        if not self.config.joint:
            log.warning(
                "ttt: the model was not trained with a rotation head, so prepare() fits one to features that never "
                "learned the task: the nearest to the paper's method that a finished model allows, not the method."
            )

    @classmethod
    def source_for(cls, fields: Mapping[str, Any]) -> str:
        return "none" if fields.get("joint") else cls.traits.source

    def study(self, source: Iterable[tuple[Tensor, Tensor]]) -> None:
        found, images = [], 0
        for batch, _ in source:
            x = batch[: self.config.head_images - images]
            features, _ = self.run_features(self.source_model, quarter_turns(x))
            found.append(features.view(TURNS, len(x), -1))
            images += len(x)
            if images == self.config.head_images:
                break
        if not found:
            raise InputError("TTT trains a rotation head on clean images and there were none. Give some batches.")
        fit(self.rotation, torch.cat(found, 1).flatten(0, 1), self.config.head_steps)
        overwrite((self.source_weight, self.source_bias), self.rotation.parameters())

    def restore_source(self) -> None:
        """As for every method; the rotation head goes back to what it was before the stream."""
        super().restore_source()
        overwrite(self.rotation.parameters(), (self.source_weight, self.source_bias))

    def adapt(self, x: Tensor) -> Step:
        turned = quarter_turns(x)
        for _ in range(self.config.steps):
            loss = self.learn(self.rotation.loss(self.run_features(self.model, turned, grad=True)[0]))
        return Step(self.logits(x), {"loss": loss})


def fit(head: RotationHead, features: Tensor, steps: int) -> None:
    """Train a head on the features of all quarter turns, (4 N, D), from zero."""
    features = features.detach()
    optimizer = torch.optim.Adam(head.parameters(), HEAD_RATE)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            head.loss(features).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
