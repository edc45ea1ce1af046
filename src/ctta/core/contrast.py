"""Contrast of features, after RMT (Döbler et al., CVPR 2023): what belongs to one sample attracts, all else repels.

nearest            the prototype most like a sample's features, by cosine
projector          two linear layers that the contrast is taken after, so that it leaves the features some freedom
contrastive_loss   prototype, features of x and of view x of one sample attract each other, all others repel
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.base.randomness import Randomness


def nearest(features: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    """For each sample the known prototype with the largest cosine, (N, D)."""
    cosine = F.normalize(features, dim=1) @ F.normalize(prototypes, dim=1).T  # (N, C)
    return prototypes[cosine.masked_fill(~known, -torch.inf).argmax(1)]


def contrastive_loss(views: Sequence[Tensor], temperature: float) -> Tensor:
    """-log of the softmax over all other features, at those of the same sample; V views of length 1, (N, D) each."""
    count, samples = len(views), len(views[0])
    flat = torch.cat(list(views))  # (V N, D)
    itself = torch.eye(count * samples, dtype=torch.bool, device=flat.device)
    similarity = (flat @ flat.T / temperature).masked_fill(itself, -torch.inf)
    friends = torch.eye(samples, dtype=torch.bool, device=flat.device).repeat(count, count) & ~itself
    return -similarity.log_softmax(1).where(friends, 0).sum(1).mean() / (count - 1)


def make_projector(width: int, projection: int) -> nn.Sequential:
    """Two linear layers, without weights yet."""
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(width, projection), nn.ReLU(), nn.Linear(projection, projection))


@torch.no_grad()
def draw_projector(projector: nn.Sequential, seed: int) -> None:
    """Fresh weights, by the rule that linear layers start with: uniform within 1 / sqrt(inputs)."""
    random = Randomness(seed, -1, torch.device("cpu"))  # a number that no batch has
    for layer in projector:
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            for parameter in layer.parameters():
                drawn = random.uniform(-bound, bound, parameter.numel()).view_as(parameter)
                parameter.copy_(drawn, non_blocking=True)
