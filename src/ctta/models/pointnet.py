"""PointNet of Qi et al., "PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation", CVPR 2017.

Point clouds (N, P, 3) to logits. Three public layouts:

    transforms "both"    input and feature transform; names of github.com/yanx27/Pointnet_Pointnet2_pytorch and
                         github.com/fxia22/pointnet.pytorch: `feat.stn.conv1.weight` ... `fc3.weight`. The
                         classifier of ModelNet40-C is this one.
    transforms "input"   the same without the feature transform, fxia22's default
    vanilla              no transforms; names of the PointNet in github.com/WangYueFt/dgcnn: `conv1.weight` ...
                         `linear2.weight`

Departures: the paper's shared layers are 64-64, feature transform, 64-128-1024. The public PyTorch code, and so "both"
and "input", have 64, feature transform, 128-1024; vanilla has all five. The code's last shared layer has no ReLU.

Only the maximum over points of the widest shared layer is needed. `pooled_layer` computes it; the result equals that of
layer, norm and maximum one after the other.

    regulariser   0.001 |I - A A^T|^2, averaged over point clouds, A the feature transform; training adds it to the loss
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.models.pooling import pooled_layer

SHARED = (64, 128, 1024)
VANILLA = (64, 64, 64, 128, 1024)
HEAD = (512, 256)
DROPOUT = 0.3
ORTHOGONAL = 0.001  # weight of the regulariser

Transforms = Literal["both", "input"]


class TransformNet(nn.Module):
    """A small PointNet from (N, C, P) to a matrix (N, C, C) near the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        first, second, third = SHARED
        self.conv1 = nn.Conv1d(channels, first, 1)
        self.conv2 = nn.Conv1d(first, second, 1)
        self.conv3 = nn.Conv1d(second, third, 1)
        self.fc1 = nn.Linear(third, HEAD[0])
        self.fc2 = nn.Linear(HEAD[0], HEAD[1])
        self.fc3 = nn.Linear(HEAD[1], channels * channels)
        self.bn1 = nn.BatchNorm1d(first)
        self.bn2 = nn.BatchNorm1d(second)
        self.bn3 = nn.BatchNorm1d(third)
        self.bn4 = nn.BatchNorm1d(HEAD[0])
        self.bn5 = nn.BatchNorm1d(HEAD[1])

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(pooled_layer(x, self.conv3, self.bn3))  # ReLU and maximum commute
        x = F.relu(self.bn4(self.fc1(x)))
        x = F.relu(self.bn5(self.fc2(x)))
        matrix: Tensor = self.fc3(x).view(-1, self.channels, self.channels)
        return matrix + torch.eye(self.channels, dtype=matrix.dtype, device=matrix.device)


class Encoder(nn.Module):
    """(N, 3, P) to one feature vector per point cloud, (N, 1024), and the feature transform (N, 64, 64) or None."""

    def __init__(self, transforms: Transforms) -> None:
        super().__init__()
        first, second, third = SHARED
        self.stn = TransformNet(3)
        self.conv1 = nn.Conv1d(3, first, 1)
        self.conv2 = nn.Conv1d(first, second, 1)
        self.conv3 = nn.Conv1d(second, third, 1)
        self.bn1 = nn.BatchNorm1d(first)
        self.bn2 = nn.BatchNorm1d(second)
        self.bn3 = nn.BatchNorm1d(third)
        self.fstn = TransformNet(first) if transforms == "both" else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        x = self.stn(x).mT @ x  # each point, as a row vector, times the matrix
        x = F.relu(self.bn1(self.conv1(x)))
        matrix = None
        if self.fstn is not None:
            matrix = self.fstn(x)
            x = matrix.mT @ x
        x = F.relu(self.bn2(self.conv2(x)))
        return pooled_layer(x, self.conv3, self.bn3), matrix


class PointNet(nn.Module):
    """Encoder and three linear layers."""

    def __init__(self, num_classes: int = 40, transforms: Transforms = "both") -> None:
        super().__init__()
        self.feat = Encoder(transforms)
        self.fc1 = nn.Linear(SHARED[-1], HEAD[0])
        self.fc2 = nn.Linear(HEAD[0], HEAD[1])
        self.fc3 = nn.Linear(HEAD[1], num_classes)
        self.dropout = nn.Dropout(DROPOUT)
        self.bn1 = nn.BatchNorm1d(HEAD[0])
        self.bn2 = nn.BatchNorm1d(HEAD[1])

    def forward(self, x: Tensor) -> Tensor:
        return self._head(self.feat(x.mT)[0])

    def regularized(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, and what training adds to their loss."""
        features, matrix = self.feat(x.mT)
        return self._head(features), x.new_zeros(()) if matrix is None else ORTHOGONAL * distance_to_orthogonal(matrix)

    def _head(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.fc1(x)))
        x = F.relu(self.bn2(self.dropout(self.fc2(x))))
        logits: Tensor = self.fc3(x)
        return logits


class VanillaPointNet(nn.Module):
    """Five shared layers, the maximum over points, two linear layers; no transforms."""

    def __init__(self, num_classes: int = 40) -> None:
        super().__init__()
        inputs = 3
        for number, width in enumerate(VANILLA, 1):
            self.add_module(f"conv{number}", nn.Conv1d(inputs, width, 1, bias=False))
            self.add_module(f"bn{number}", nn.BatchNorm1d(width))
            inputs = width
        self.linear1 = nn.Linear(inputs, HEAD[0], bias=False)
        self.bn6 = nn.BatchNorm1d(HEAD[0])
        self.dp1 = nn.Dropout(0.5)
        self.linear2 = nn.Linear(HEAD[0], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT
        for number in range(1, len(VANILLA)):
            x = self.get_submodule(f"conv{number}")(x)
            x = F.relu(self.get_submodule(f"bn{number}")(x))
        conv, norm = self.get_submodule("conv5"), self.get_submodule("bn5")
        assert isinstance(conv, nn.Conv1d)
        x = F.relu(pooled_layer(x, conv, norm))  # ReLU and maximum commute
        logits: Tensor = self.linear2(self.dp1(F.relu(self.bn6(self.linear1(x)))))
        return logits


def distance_to_orthogonal(matrix: Tensor) -> Tensor:
    """Return |I - A A^T|^2, the sum of squares of all entries, averaged over matrices (N, C, C)."""
    difference = torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device) - matrix @ matrix.mT
    return difference.square().sum((1, 2)).mean()
