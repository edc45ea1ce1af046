"""DGCNN of Wang et al., "Dynamic Graph CNN for Learning on Point Clouds", ACM TOG 2019: clouds (N, P, 3) to logits.

Names are those of the authors' PyTorch code, github.com/WangYueFt/dgcnn: `conv1.0.weight` ... `linear3.weight`. As
there, `bn1` ... `bn5` are also the second layers of `conv1` ... `conv5`, so a state dict names them twice.

    neighbours      the k nearest points of each point, in the space of the layer's input, itself among them
    edge features   e_ij = W [x_j - x_i, x_i]
    edge layer      max over j of leaky_relu(norm(e_ij))

An edge layer never holds its N P k edges. With W = [A, B], e_ij = u_j + v_i with u = A x and v = (B - A) x: one product
a point, not one an edge. Norm and leaky ReLU are monotone in every channel, so the maximum (minimum, where the norm's
slope is negative) is taken first, over u alone. What the norm layer needs beyond that are the edges' mean and variance,
which follow from sums of u and v. It is shown two values a cloud and channel, mean + deviation and mean - deviation:
their mean and variance are those of the cloud's edges, and of the batch's. So BatchNorm works with whatever statistics
it is asked to use, and what it makes of the two values tells what it makes of every edge.

Departures: none in what is computed. The values are repeated P/2 times, so that in training the running variance, which
torch multiplies by n / (n - 1), has n = N P in that factor and not N P k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ctta.models.pointnet import pool

NEIGHBOURS = 20
WIDTHS = (64, 64, 128, 256)
EMBEDDING = 1024
SLOPE = 0.2
BLOCK = 2**20  # distances that are held at a time: four megabytes, which a core's cache holds
TINY = 1e-12  # keeps the gradient of a deviation of 0 finite


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


def dgcnn(num_classes: int = 40) -> DGCNN:
    """A `DGCNN` with fresh weights."""
    return DGCNN(num_classes)


def edge_layer(x: Tensor, near: Tensor, conv: nn.Conv2d, norm: nn.Module, activation: nn.Module) -> Tensor:
    """Points (N, P, C) and their neighbours (N, P, k) to max over j of activation(norm(W [x_j - x_i, x_i]))."""
    u, v = edge_terms(x, conv.weight)
    mean, deviation = edge_moments(u, v, near)  # (N, 1, C)
    shown = torch.stack([mean + deviation, mean - deviation], 1).permute(0, 3, 1, 2)  # (N, C, 2, 1)
    high, low = norm(shown.expand(-1, -1, -1, max(1, x.shape[1] // 2)))[..., :1].unbind(2)  # (N, C, 1)
    middle, half = ((high + low) / 2).mT, ((high - low) / 2).mT  # (N, 1, C)
    sign = torch.where(half.detach() < 0, -1.0, 1.0).to(u.dtype)
    largest: Tensor = _NeighbourMax.apply(sign * u, near)  # type: ignore[no-untyped-call]
    out: Tensor = activation(middle + half * ((sign * largest + v - mean) / deviation))
    return out


def neighbours(x: Tensor, k: int, block: int = BLOCK) -> Tensor:
    """The k nearest points (N, P, k) of every point of (N, P, C), itself among them, in no order; all where P < k."""
    with torch.no_grad():
        x = x.detach() - x.detach().mean(1, keepdim=True)  # distances stay, rounding shrinks
        squares = x.square().sum(2)[:, None]  # (N, 1, P)
        rows = max(1, block // x.shape[1])
        found = [
            # |x_i|^2 is the same along a row, so the nearest are those with the largest 2 x_i x_j - |x_j|^2.
            torch.baddbmm(square[None], part[None], cloud.mT[None], beta=-1, alpha=2).topk(
                min(k, x.shape[1]), sorted=False
            )[1][0]
            for cloud, square in zip(x, squares, strict=True)
            for part in cloud.split(rows)
        ]
        return torch.cat(found).view(*x.shape[:2], -1)


def edge_terms(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """u and v (N, P, out) with W [x_j - x_i, x_i] = u_j + v_i; the weight is (out, 2 C, 1, 1)."""
    a, b = weight.flatten(1).chunk(2, 1)
    u, v = F.linear(x, torch.cat([a, b - a])).to(x.dtype).chunk(2, 2)
    return u.contiguous(), v.contiguous()


def edge_moments(u: Tensor, v: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation (N, 1, C) over a cloud's edges u_j + v_i."""
    n, points, k = near.shape
    shift_u, shift_v = u.mean(1, keepdim=True), v.mean(1, keepdim=True)
    u, v = u - shift_u, v - shift_v  # so that squares stay small
    index = (near + points * torch.arange(n, device=near.device).view(-1, 1, 1)).view(-1, k)
    sums = F.embedding_bag(index, u.reshape(n * points, -1), mode="sum").view_as(u)  # over j, for each i
    once = torch.ones(1, dtype=u.dtype, device=u.device).expand(index.numel())
    degree = torch.zeros_like(u[..., :1]).view(-1).index_add(0, index.view(-1), once).view(n, points, 1)  # of each j
    mean = sums.sum(1, keepdim=True) / (points * k)
    squares = degree * u.square() + 2 * sums * v + k * v.square()  # summed over points: (u_j + v_i)^2 over all edges
    variance = squares.sum(1, keepdim=True) / (points * k) - mean.square()
    return mean + shift_u + shift_v, (variance.clamp(min=0) + TINY).sqrt()


class _NeighbourMax(torch.autograd.Function):
    """The maximum over neighbours, (N, P, C) and (N, P, k) to (N, P, C), one neighbour at a time.

    Built-in operations gather all P k rows first. The gradient goes to the first neighbour that has the maximum.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, near: Tensor) -> Tensor:
        largest = []
        for cloud, ranks in zip(u, near.mT.contiguous(), strict=True):
            best = cloud.index_select(0, ranks[0])
            for rank in ranks[1:]:
                best = torch.maximum(best, cloud.index_select(0, rank), out=best)
            largest.append(best)
        out = torch.stack(largest)
        ctx.save_for_backward(u, near, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        u, near, out = ctx.saved_tensors
        result = torch.zeros_like(u)
        parts: Sequence[Tensor] = (result, u, near.mT.contiguous(), out, gradients[0])
        for into, cloud, ranks, best, gradient in zip(*parts, strict=True):
            left = gradient.clone()
            for rank in ranks:
                share = left * (cloud.index_select(0, rank) == best)
                into.index_add_(0, rank, share)
                left -= share
        return result, None


def _layer(conv: nn.Module, norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(conv, norm, nn.LeakyReLU(SLOPE))
