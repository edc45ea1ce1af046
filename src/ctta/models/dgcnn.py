"""DGCNN of Wang et al., "Dynamic Graph CNN for Learning on Point Clouds", ACM TOG 2019: (N, P, 3) to logits.

Names are those of the authors' PyTorch code, github.com/WangYueFt/dgcnn: `conv1.0.weight` ... `linear3.weight`. As
there, `bn1` ... `bn5` are also the second layers of `conv1` ... `conv5`, so a state dict names them twice.

    neighbours      the k nearest points of each point, in the space of the layer's input, itself among them
    edge features   e_ij = W [x_j - x_i, x_i]
    edge layer      max over j of leaky_relu(norm(e_ij))

An edge layer never stores its N P k edges. With W = [A, B], e_ij = u_j + v_i with u = A x and v = (B - A) x: one
product per point instead of one per edge. Norm and leaky ReLU are monotone in every channel, so the maximum (the
minimum, if the slope of the norm is negative) is taken first, over u only. The norm layer also needs the mean and
variance of the edges, which follow from sums of u and v; `ctta.models.pooling` describes how it gets them.

Departures: none in what is computed, except the factor n / (n - 1) of the running variance in training, which has
n = 32 N instead of N P k: a difference of 0.1 % for 32 point clouds.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ctta.models.pooling import TINY, normalize_moments, pool, slope_sign

NEIGHBOURS = 20
WIDTHS = (64, 64, 128, 256)
EMBEDDING = 1024
SLOPE = 0.2
BLOCK = 2**20  # distances that are stored at a time: four megabytes, which fit into the cache of a core
GROUP = 8  # points of a row of distances of which the nearest is found first


class DGCNN(nn.Module):
    """Four edge layers, an embedding of all their outputs, its maximum and mean over points, three linear layers."""

    def __init__(self, num_classes: int = 40, k: int = NEIGHBOURS, dropout: float = 0.5) -> None:
        super().__init__()
        self.k = k
        inputs = 3
        for number, width in enumerate(WIDTHS, 1):
            norm = nn.BatchNorm2d(width)
            self.add_module(f"bn{number}", norm)
            self.add_module(f"conv{number}", _layer(nn.Conv2d(2 * inputs, width, 1, bias=False), norm))
            inputs = width
        self.bn5 = nn.BatchNorm1d(EMBEDDING)
        self.conv5 = _layer(nn.Conv1d(sum(WIDTHS), EMBEDDING, 1, bias=False), self.bn5)
        self.linear1 = nn.Linear(2 * EMBEDDING, 512, bias=False)
        self.bn6 = nn.BatchNorm1d(512)
        self.dp1 = nn.Dropout(dropout)
        self.linear2 = nn.Linear(512, 256)
        self.bn7 = nn.BatchNorm1d(256)
        self.dp2 = nn.Dropout(dropout)
        self.linear3 = nn.Linear(256, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        features = []
        for number in range(1, len(WIDTHS) + 1):
            layer = self.get_submodule(f"conv{number}")
            assert isinstance(layer, nn.Sequential)
            x = edge_layer(x, neighbours(x, self.k), *layer)  # (N, P, C)
            features.append(x)
        points: Tensor = self.conv5(torch.cat(features, 2).mT)  # (N, 1024, P)
        x = torch.cat([pool(points), points.mean(2)], 1)
        x = self.dp1(F.leaky_relu(self.bn6(self.linear1(x)), SLOPE))
        x = self.dp2(F.leaky_relu(self.bn7(self.linear2(x)), SLOPE))
        logits: Tensor = self.linear3(x)
        return logits


def edge_layer(x: Tensor, near: Tensor, conv: nn.Conv2d, norm: nn.Module, activation: nn.Module) -> Tensor:
    """Map points (N, P, C) and neighbours (N, P, k) to max over j of activation(norm(W [x_j - x_i, x_i]))."""
    sign = slope_sign(norm)
    u, v = edge_terms(x, sign[:, None, None, None] * conv.weight)  # so that it is the maximum in every channel
    mean, deviation = edge_moments(u, v, near)  # (N, C)
    middle, half = normalize_moments(norm, sign * mean, deviation)
    slope = half * sign / deviation
    largest: Tensor = _NeighbourMax.apply(u, near)  # type: ignore[no-untyped-call]
    out: Tensor = activation(torch.addcmul((middle - slope * mean)[:, None], slope[:, None], largest + v))
    return out


def neighbours(x: Tensor, k: int, block: int = BLOCK) -> Tensor:
    """Return the k nearest points (N, P, k) of every point of (N, P, C), including itself, unsorted; all if P < k."""
    kind = x.device.type
    # Autocast would round distances to three digits, too few to distinguish near points.
    exact = torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
    with torch.no_grad(), exact:
        x = x.detach() - x.detach().mean(1, keepdim=True)  # distances stay, rounding shrinks
        squares = x.square().sum(2)[:, None]  # (N, 1, P)
        rows = max(1, block // x.shape[1])
        found = [
            # |x_i|^2 is the same along a row, so the nearest are those with the largest 2 x_i x_j - |x_j|^2.
            largest_places(torch.baddbmm(square[None], part[None], cloud.mT[None], beta=-1, alpha=2)[0], k)
            for cloud, square in zip(x, squares, strict=True)
            for part in cloud.split(rows)
        ]
        return torch.cat(found).view(*x.shape[:2], -1)


def largest_places(values: Tensor, k: int) -> Tensor:
    """Return the positions of the k largest values of each row (R, P), unsorted; all if P < k.

    They are in the k groups with the largest maxima, so most of a row need not be sorted.
    """
    groups = values.shape[1] // GROUP
    if groups <= k or values.shape[1] % GROUP:
        return values.topk(min(k, values.shape[1]), sorted=False)[1]
    grouped = values.view(-1, GROUP, groups)
    best = grouped.amax(1).topk(k, sorted=False)[1]  # (R, k)
    place = grouped.gather(2, best[:, None].expand(-1, GROUP, -1)).flatten(1).topk(k, sorted=False)[1]
    return place // k * groups + best.gather(1, place % k)


def edge_terms(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return u and v (N, P, out) with W [x_j - x_i, x_i] = u_j + v_i; the weight is (out, 2 C, 1, 1)."""
    a, b = weight.flatten(1).chunk(2, 1)
    u, v = F.linear(x, torch.cat([a, b - a])).to(x.dtype).chunk(2, 2)
    return u.contiguous(), v.contiguous()


def edge_moments(u: Tensor, v: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation (N, C) over the edges u_j + v_i of a point cloud."""
    n, points, k = near.shape
    shift_u, shift_v = u.mean(1, keepdim=True), v.mean(1, keepdim=True)
    u, v = u - shift_u, v - shift_v  # so that squares stay small
    index = (near + points * torch.arange(n, device=near.device).view(-1, 1, 1)).view(-1, k)
    sums = F.embedding_bag(index, u.reshape(n * points, -1), mode="sum").view_as(u)  # over j, for each i
    once = torch.ones(1, dtype=u.dtype, device=u.device).expand(index.numel())
    degree = torch.zeros_like(u[..., :1]).view(-1).index_add(0, index.view(-1), once).view(n, points, 1)  # of each j
    mean = sums.sum(1) / (points * k)
    squares = degree * u.square() + 2 * sums * v + k * v.square()  # summed over points: (u_j + v_i)^2 over all edges
    variance = squares.sum(1) / (points * k) - mean.square()
    return mean + (shift_u + shift_v).squeeze(1), (variance.clamp(min=0) + TINY).sqrt()


class _NeighbourMax(torch.autograd.Function):
    """The maximum over neighbours, (N, P, C) and (N, P, k) to (N, P, C), one neighbour at a time.

    Built-in operations would gather all P k rows first. The gradient goes to the first neighbour with the maximum.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, near: Tensor) -> Tensor:
        largest, places = [], []
        for cloud, indices in zip(u, near, strict=True):
            ranks = indices.mT.contiguous()
            best = cloud.index_select(0, ranks[0])
            which = torch.zeros_like(best, dtype=torch.int16)  # the rank that has the maximum
            for number, rank in enumerate(ranks[1:], 1):
                value = cloud.index_select(0, rank)
                if ctx.needs_input_grad[0]:
                    torch.maximum(which, (value > best).to(which.dtype).mul_(number), out=which)
                torch.maximum(best, value, out=best)
            largest.append(best)
            if ctx.needs_input_grad[0]:
                places.append(indices.gather(1, which.long()))
        if places:
            ctx.save_for_backward(torch.stack(places))
        return torch.stack(largest)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.zeros_like(gradients[0]).scatter_add_(1, ctx.saved_tensors[0], gradients[0]), None


def _layer(conv: nn.Module, norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(conv, norm, nn.LeakyReLU(SLOPE))
