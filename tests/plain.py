"""Plain torch, as the field's public code is written, for comparison with our methods."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ctta.testing.networks import CLASSES, make_batch, make_network


def with_batch_statistics(network: nn.Module) -> nn.Module:
    """Copy the network without running statistics, as the field's public code does."""
    network = copy.deepcopy(network).eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.train()
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None
    return network


def make_decisive() -> nn.Module:
    """The image network with a head that is sure of some images and not of others, and predicts all classes."""
    network = make_network("image_bn")
    with torch.no_grad():
        mean = with_batch_statistics(network)(make_batch("image_bn", 256, seed=50)).mean(0)
        network.head.bias.sub_(mean)
        for parameter in network.head.parameters():
            parameter.mul_(16)
    return network


def identity_views(x: torch.Tensor, random: object) -> torch.Tensor:
    """Augment nothing, so that a random method becomes deterministic."""
    return x.clone()


def norm_weights(network: nn.Module) -> list[nn.Parameter]:
    """Weights and biases of the BatchNorm layers."""
    return [p for layer in network.modules() if isinstance(layer, nn.BatchNorm2d) for p in (layer.weight, layer.bias)]


def cross_entropies(target: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """One value per sample, in loops."""
    rows = []
    for t, z in zip(target.softmax(1), logits, strict=True):
        total = z.exp().sum()
        rows.append(-sum(t[c] * (z[c].exp() / total).log() for c in range(len(z))))
    return torch.stack(rows)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 1e-3)


class PlainETA:
    """ETA, and EATA with `fisher`, as its authors describe it: filter twice, average, weight, step."""

    def __init__(self, network, optimizer, *, d, fisher=None, anchor=0.0):
        self.network = with_batch_statistics(network)
        self.learned = norm_weights(self.network)
        self.start = [p.detach().clone() for p in self.learned]
        self.optimizer = optimizer(self.learned)
        self.limit, self.d, self.fisher, self.anchor = 0.4 * math.log(CLASSES), d, fisher, anchor
        self.average, self.kept = None, []

    def __call__(self, x):
        logits = self.network(x)
        p = logits.softmax(1)
        h = -(p * p.log()).sum(1)
        chosen = [i for i in range(len(x)) if h[i] < self.limit]
        if self.average is not None:
            lengths = [(self.average.norm() * p[i].norm()).item() for i in chosen]
            cosines = [abs((self.average @ p[i]).item()) / n for i, n in zip(chosen, lengths, strict=True)]
            chosen = [i for i, cosine in zip(chosen, cosines, strict=True) if cosine < self.d]
        self.kept.append(len(chosen))
        if chosen:
            mean = p[chosen].detach().mean(0)
            self.average = mean if self.average is None else 0.9 * self.average + 0.1 * mean
            loss = (h[chosen] * torch.exp(self.limit - h[chosen].detach())).mean()
            for number, parameter in enumerate(self.learned if self.fisher else []):
                loss = loss + self.anchor * (self.fisher[number] * (parameter - self.start[number]) ** 2).sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return logits.detach()


def roid_batch(model: nn.Module, x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ROID's loss, corrected logits, which samples are kept, and the mean probability after a batch."""
    z = model(x)
    p, (samples, classes) = z.softmax(1), z.shape
    with torch.no_grad():
        unlike = torch.stack([1 - (row @ mean) / (row.norm() * mean.norm()) for row in p])
        unlike = (unlike - unlike.min()) / (unlike.max() - unlike.min())
        certain = (p * p.log()).sum(1)
        certain = (certain - certain.min()) / (certain.max() - certain.min())
        keep = unlike >= unlike.mean()
        weight = torch.exp(3 * unlike * certain)[keep]
        prior = p.mean(0)
        smooth = max(1 / samples, 1 / classes) / prior.max()
        corrected = z * (prior + smooth) / (1 + classes * smooth)
    clipped = p[keep].clamp(max=0.99)
    ratio = -(clipped * torch.log(clipped / (1 - clipped) + 1e-5)).sum(1)
    view = model(x[keep])  # normalised with the statistics of those that are kept
    agree = 0.5 * cross_entropies(z[keep], view) + 0.5 * cross_entropies(view, z[keep])
    return ((ratio + agree) * weight).sum() / samples, corrected, keep, 0.9 * mean + 0.1 * prior
