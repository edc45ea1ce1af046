"""A small vision transformer that is also a masked autoencoder, for images of 32 pixels.

Patches of 4 pixels, four blocks of width 128 in the encoder and one of width 64 in the decoder, four heads each. In
training both tasks are learned together: `regularized` gives logits, and the loss of the reconstruction as penalty.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ctta.core.masking import MaskedAutoencoder

SIDE, PATCH, KEPT = 32, 4, 0.25
PATCHES = (SIDE // PATCH) ** 2
WIDTH, NARROW, HEADS, DEPTH = 128, 64, 4, 4


class Block(nn.Module):
    """Attention and an MLP, each after a LayerNorm and beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        found: Tensor = x + self.mlp(self.norm2(x))
        return found


class Encoder(nn.Module):
    """Tokens of the class and of the patches that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.position = nn.Parameter(torch.randn(1, PATCHES, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(WIDTH) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        if keep is not None:
            tokens = tokens.gather(1, keep[:, :, None].expand(-1, -1, WIDTH))
        found: Tensor = self.norm(self.blocks(torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)))
        return found


class Decoder(nn.Module):
    """Pixels of all patches, from the tokens of some."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, NARROW)
        self.hidden = nn.Parameter(torch.randn(1, 1, NARROW) * 0.02)
        self.position = nn.Parameter(torch.randn(1, PATCHES, NARROW) * 0.02)
        self.block, self.norm = Block(NARROW), nn.LayerNorm(NARROW)
        self.pixels = nn.Linear(NARROW, 3 * PATCH * PATCH)

    def forward(self, tokens: Tensor, keep: Tensor) -> Tensor:
        tokens = self.embed(tokens)
        hidden = self.hidden.to(tokens.dtype).expand(len(tokens), PATCHES, -1)
        seen = hidden.scatter(1, keep[:, :, None].expand(-1, -1, NARROW), tokens[:, 1:])
        found: Tensor = self.block(torch.cat([tokens[:, :1], seen + self.position], 1))[:, 1:]
        pixels: Tensor = self.pixels(self.norm(found))
        return pixels


class ViTMAE(MaskedAutoencoder):
    """The triple of encoder, decoder and head."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(Encoder(), Decoder(), nn.Linear(WIDTH, num_classes), PATCH)

    def regularized(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the loss of a reconstruction from random patches, drawn from the global generator."""
        keep = torch.rand(len(x), PATCHES, device=x.device).argsort(1)[:, : round(KEPT * PATCHES)]
        return self(x), self.reconstruction_loss(x, keep).mean()
