"""A small PointNet without transforms, designed to be fast on a CPU.

The weights in `assets/` were trained on generated solids by `scripts/train_embedded_clouds.py`.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (32, 64, 128)  # shared layers
HEAD = 64


class SmallPointNet(nn.Module):
    """Point clouds (N, P, 3) to logits (N, C): three shared layers, the maximum over points, two linear layers."""

    def __init__(self, num_classes: int = 12) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.conv1 = nn.Conv1d(3, first, 1, bias=False)
        self.bn1 = nn.BatchNorm1d(first)
        self.conv2 = nn.Conv1d(first, second, 1, bias=False)
        self.bn2 = nn.BatchNorm1d(second)
        self.conv3 = nn.Conv1d(second, third, 1, bias=False)
        self.bn3 = nn.BatchNorm1d(third)
        self.fc1 = nn.Linear(third, HEAD, bias=False)
        self.bn4 = nn.BatchNorm1d(HEAD)
        self.fc2 = nn.Linear(HEAD, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        clouds, points, _ = x.shape
        rows = x.reshape(clouds * points, 3)  # a shared layer is one matrix product
        for conv, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            rows = F.relu(norm(F.linear(rows, conv.weight.squeeze(2))))
        x = rows.view(clouds, points, -1)
        x = x.max(1).values if x.requires_grad else x.amax(1)
        logits: Tensor = self.fc2(F.relu(self.bn4(self.fc1(x))))
        return logits
