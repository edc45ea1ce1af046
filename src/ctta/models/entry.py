"""What a line of the table of models says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass(frozen=True)
class Checkpoint:
    """A public file of weights."""

    name: str  # as its authors call it
    sha256: str  # or its first digits, where the public name carries no more
    error: float | None  # on the clean test set, in percent
    # Mean error over the paper's fifteen corruptions at severity 5, in percent, by the title of the data set.
    corrupted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelEntry:
    """A network, and what belongs to its public weights."""

    builder: Callable[..., nn.Module]  # takes num_classes
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_size: int  # pixels a side, or points of a cloud
    note: str  # the data it was trained on, and by whom
    source: str  # where to get the weights
    checkpoints: tuple[Checkpoint, ...] = ()
    assumed: Checkpoint | None = None  # the public weights where nobody knows their hash: a file is taken at its word
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None  # a package's own weights, from its local cache
    clouds: bool = False  # whether it takes clouds (N, P, 3), not images

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample, as its weights were trained on."""
        return (self.input_size, 3) if self.clouds else (3, self.input_size, self.input_size)

    def build(self, num_classes: int | None = None) -> nn.Module:
        """The network with fresh weights."""
        return self.builder(num_classes=self.num_classes if num_classes is None else num_classes)
