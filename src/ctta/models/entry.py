"""The entry of the table of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass(frozen=True)
class PublicWeights:
    """A published file of weights."""

    name: str  # the name its authors use
    sha256: str  # or its first digits, if the public file name has no more
    error: float | None  # on the clean test set, in percent
    # Mean error over the paper's fifteen corruptions at severity 5, in percent, by the title of the data set.
    corrupted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelEntry:
    """A network, and what is known about its public weights."""

    builder: Callable[..., nn.Module]  # takes num_classes
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_size: int  # pixels per side, or points of a point cloud
    note: str  # the data it was trained on, and by whom
    source: str  # where to get the weights
    checkpoints: tuple[PublicWeights, ...] = ()
    assumed: PublicWeights | None = None  # the public weights if their hash is not known: any file is taken for them
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None  # the weights of another package, from its local cache
    clouds: bool = False  # whether it takes point clouds (N, P, 3) instead of images

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, as in training."""
        return (self.input_size, 3) if self.clouds else (3, self.input_size, self.input_size)

    def build(self, num_classes: int | None = None) -> nn.Module:
        """Build the network with random weights."""
        return self.builder(num_classes=self.num_classes if num_classes is None else num_classes)
