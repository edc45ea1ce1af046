"""AdaContrast, online: labels refined by neighbours, and contrast between samples of different labels.

Chen et al., "Contrastive Test-Time Adaptation", CVPR 2022.

    refined            probabilities of the weak view, averaged over the 10 nearest (cosine) of a memory
    classification     cross-entropy of the strong view's prediction with the refined label
    contrast_loss      InfoNCE of a strong view's feature and its key, against a queue without the same label
    diversity_loss     sum_c m_c log m_c, m the mean probability of the strong view
    key model          key <- 0.999 key + 0.001 student, all parameters; it fills memory and queue
    returns            the student's prediction without augmentation, with running statistics (after the update)

The student trains as models are trained: each pass normalises with its own statistics, and the running ones follow.

Departures: of point clouds, weak and strong views are the same kind. Crops are left out, as the released code has them
for images of the model's own size. The memory is a ring of fixed size that begins empty; the code's grows up to it.
Once it is full, ours overwrites the oldest samples; the released one begins with the newest batch, and comes to the
oldest after it. The queue is masked by the labels of its entries; the code has already overwritten some by this
batch's. Views are not rounded to 8 bits after every operation, as Pillow's are, which loses half a grey level per
jitter and blurs images of low contrast less. Dropout stays off; all parameters learn, not only those named weight or
bias. The paper refines labels from the start with a memory of the whole target set; online, neighbours count once 1024
samples are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ctta.base.config import setting
from ctta.base.limits import VECTORS
from ctta.base.randomness import Randomness
from ctta.core import statistics
from ctta.core.adapter import Adapter, Step
from ctta.core.settings import PAPER, Augmentation, Features, OptimizerSettings, Presets, Traits, same_presets


@dataclass(frozen=True)
class AdaContrastConfig(Augmentation, Features, OptimizerSettings):
    """Settings of AdaContrast."""

    draw: Literal["batch", "sample"] = setting(
        "sample", "One random augmentation for the whole batch, or one per sample."
    )
    ema: float = setting(0.999, "Decay of the key model's moving average.", symbol="m", low=0.0, high=1.0)
    queue: int = setting(
        16384, "Samples that memory and queue hold; both take features as wide as the model's.", low=1, high=VECTORS
    )
    neighbours: int = setting(10, "Neighbours that refine a label.", symbol="N", low=1)
    refine_after: int = setting(1024, "Samples that must be in the memory before neighbours count.", low=0)
    temperature: float = setting(
        0.07, "Sharpness of the contrast; lower is sharper.", symbol="tau", low=0.0, open_low=True
    )


class AdaContrast(Adapter):
    """Contrastive learning with pseudo-labels refined by nearest neighbours."""

    name = "adacontrast"
    title = "AdaContrast"
    traits = Traits("all parameters", forwards=(5, 5), backwards=(1, 1), answers="after")
    config_type = AdaContrastConfig
    config: AdaContrastConfig
    variants: ClassVar[Presets] = {PAPER: {}}
    presets: ClassVar[Presets] = same_presets(optimizer="sgd", lr=2e-4, weight_decay=1e-4)
    seen: Tensor
    memory_features: Tensor
    memory_probabilities: Tensor
    queue_features: Tensor
    queue_labels: Tensor

    def build(self) -> None:
        width, size = self.find_head(), self.config.queue
        self.student, self.key = self.copy_source(), self.copy_source()
        statistics.install_statistics(self.key, "batch", 1.0)
        self.train_on(self.student.parameters())
        device, dtype = self.placement
        features, labels = random_queue(size, width, self.classes)
        self.register_buffer("queue_features", features.to(device, dtype, non_blocking=True))
        self.register_buffer("queue_labels", labels.to(device, non_blocking=True))
        self.register_buffer("memory_features", torch.zeros(size, width, device=device, dtype=dtype))
        self.register_buffer("memory_probabilities", torch.zeros(size, self.classes, device=device, dtype=dtype))
        self.register_buffer("seen", torch.zeros((), device=device, dtype=torch.int64))

    def adapt(self, x: Tensor) -> Step:
        (weak,) = self.make_views(x, kind="weak")
        strong, other = self.make_views(x, 2, kind="strong")
        with statistics.training_statistics(self.student):
            label = self.refine(*self.run_features(self.student, weak)).argmax(1)
            query, logits = self.run_features(self.student, strong, grad=True)
            key, _ = self.run_features(self.key, other)
            contrast = self.contrast(query, key, label)
            loss = self.learn(F.cross_entropy(logits, label) + contrast + diversity_loss(logits))
        self.remember(key, label, *self.run_features(self.key, weak))
        self.follow(self.key.parameters(), self.student.parameters(), self.config.ema)
        return Step(self.logits(x), {"loss": loss, "contrast": contrast})

    def contrast(self, query: Tensor, key: Tensor, label: Tensor) -> Tensor:
        """The contrastive loss against the queue as it is."""
        same = label[:, None] == self.queue_labels
        query, key = F.normalize(query, dim=1), F.normalize(key, dim=1)
        return contrast_loss(query, key, self.queue_features, same, self.config.temperature)

    def refine(self, features: Tensor, logits: Tensor) -> Tensor:
        """The neighbours' probabilities once there are enough of them, before that the sample's own, (N, C)."""
        filled = torch.arange(len(self.memory_features), device=features.device) < self.seen
        similarity = F.normalize(features, dim=1) @ self.memory_features.T
        found = refined(similarity.masked_fill(~filled, -torch.inf), self.memory_probabilities, self.config.neighbours)
        return torch.where(self.seen >= max(self.config.refine_after, 1), found, logits.softmax(1))

    def remember(self, key: Tensor, label: Tensor, features: Tensor, logits: Tensor) -> None:
        """Put a batch in the oldest places of queue and memory."""
        key, features, probability = F.normalize(key, dim=1), F.normalize(features, dim=1), logits.softmax(1)
        size = len(self.queue_features)
        places = (self.seen + torch.arange(len(key), device=key.device))[-size:] % size
        rings = (self.queue_features, self.queue_labels, self.memory_features, self.memory_probabilities)
        for ring, rows in zip(rings, (key, label, features, probability), strict=True):
            ring.index_copy_(0, places, rows[-size:].to(ring.dtype))
        self.seen += len(key)


def refined(similarity: Tensor, probabilities: Tensor, neighbours: int) -> Tensor:
    """The mean probability (M, C) of those most similar to each sample, (N, M) to (N, C)."""
    closest = similarity.topk(min(neighbours, similarity.shape[1])).indices
    return probabilities[closest].mean(1)


def contrast_loss(query: Tensor, key: Tensor, queue: Tensor, same: Tensor, temperature: float) -> Tensor:
    """InfoNCE: a query is to be like its key, (N, D), and unlike the queue, (K, D), but for entries of `same` label."""
    alike = (query * key).sum(1, keepdim=True)
    others = (query @ queue.T).masked_fill(same, -torch.inf)
    return -(torch.cat([alike, others], 1) / temperature).log_softmax(1)[:, 0].mean()


def diversity_loss(logits: Tensor) -> Tensor:
    """Minus the entropy of the batch's mean probability: low if the predictions are diverse."""
    mean = logits.softmax(1).mean(0)
    return (mean * (mean + 1e-8).log()).sum()


def random_queue(size: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """What the queue holds before any sample: directions and labels at random, always the same."""
    generator = Randomness(0, -1, torch.device("cpu")).host
    features = torch.randn(size, width, generator=generator, dtype=torch.float32, device="cpu")
    return F.normalize(features, dim=1), torch.randint(classes, (size,), generator=generator, device="cpu")
