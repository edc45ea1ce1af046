"""An easy problem, a network that has learned it, and a stream that has shifted a little: what no method should spoil.

Classes differ in colour, with noise. The stream has less contrast, and the source model still gets nearly all of it
right. A method whose learning goes the wrong way ends far worse after a hundred batches; none of those in ctta does.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.testing.networks import CLASSES, ImageBN

COLOURS = ((0.9, 0.1, 0.1), (0.1, 0.9, 0.1), (0.1, 0.1, 0.9), (0.8, 0.8, 0.2), (0.2, 0.2, 0.2))
NOISE = 0.3
CONTRAST = 0.8  # of the stream; 1 in training
TRAINED = 150  # steps
SMOOTHING = 0.1  # of the labels, so that the model is not so sure that there is nothing to learn
BATCHES, BATCH = 100, 32

Labelled = tuple[Tensor, Tensor]


def draw(generator: torch.Generator, contrast: float = 1.0) -> Labelled:
    """A batch of images in [0, 1], and their labels."""
    y = torch.randint(CLASSES, (BATCH,), generator=generator)
    noise = torch.randn(BATCH, 3, 4, 4, generator=generator, dtype=torch.float32)
    coarse = torch.tensor(COLOURS, dtype=torch.float32)[y][:, :, None, None] + NOISE * noise
    x = F.interpolate(coarse, size=(16, 16), mode="nearest")
    return (0.5 + contrast * 0.5 * (x - 0.5)).clamp(0, 1), y


def source_batches() -> list[Labelled]:
    """Labelled source data, for methods that need them."""
    generator = torch.Generator().manual_seed(3)
    return [draw(generator) for _ in range(5)]


@cache
def stream() -> list[Labelled]:
    """The shifted stream."""
    generator = torch.Generator().manual_seed(2)
    return [draw(generator, CONTRAST) for _ in range(BATCHES)]


@cache
def source_model() -> nn.Module:
    """The network, trained on the spot."""
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        network = ImageBN().float()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        for _ in range(TRAINED):
            x, y = draw(generator)
            optimizer.zero_grad()
            F.cross_entropy(network(x), y, label_smoothing=SMOOTHING).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return network.eval()
