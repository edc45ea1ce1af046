"""Small networks, one per kind of architecture, and streams of batches for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 5


class ImageBN(nn.Module):
    """Convolutions with BatchNorm2d."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu_()
        x = self.bn2(self.conv2(x)).relu_()
        logits: Tensor = self.head(self.drop(x.mean((2, 3))))
        return logits


class ImageGN(nn.Sequential):
    """Convolutions with GroupNorm."""

    def __init__(self) -> None:
        convolutions = (nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU(inplace=True))
        super().__init__(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


class TinyViT(nn.Module):
    """Patches, a class token, a position embedding, one attention block with LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.position = nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        logits: Tensor = self.head(x[:, 0])
        return logits


class TinyPointNet(nn.Module):
    """A shared MLP with BatchNorm1d, a maximum over points, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16)
        self.conv2, self.bn2 = nn.Conv1d(16, 16, 1), nn.BatchNorm1d(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x.transpose(1, 2))).relu()
        x = self.bn2(self.conv2(x)).relu()
        logits: Tensor = self.head(x.amax(2))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {
    "image_bn": ImageBN,
    "image_gn": ImageGN,
    "vit_ln": TinyViT,
    "pointnet_bn": TinyPointNet,
}


def make_network(kind: str) -> nn.Module:
    """A network whose source statistics differ from any batch's, in training mode, as a careless caller leaves it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        network = NETWORKS[kind]()
        norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
        for layer in norms:
            layer.momentum = 0.9  # so that one pass is enough to know the source
        network(make_batch(kind, 64, seed=99))
        for layer in norms:
            layer.momentum = 0.1
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(1.5)
    return network.train()


def make_batch(kind: str, n: int, seed: int) -> Tensor:
    """Random images in [0, 1], or point clouds in the unit cube."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "pointnet_bn":
        return torch.rand(n, 24, 3, generator=generator, dtype=torch.float32) * 2 - 1
    low = torch.rand(n, 3, 4, 4, generator=generator, dtype=torch.float32)
    return nn.functional.interpolate(low, size=(16, 16), mode="bilinear") * 0.9


def make_stream(kind: str, batches: int = 6) -> list[Tensor]:
    """Batches whose brightness (or size) drifts; the last one is smaller than the others."""
    sizes = [8] * (batches - 1) + [5]
    scales = torch.linspace(1.0, 0.4, batches).tolist()
    return [make_batch(kind, n, seed=i) * scale for i, (n, scale) in enumerate(zip(sizes, scales, strict=True))]
