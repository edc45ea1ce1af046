"""What is served: the model, opened as a command asks for it, and the samples that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ctta.base.errors import ConfigError
from ctta.base.text import quoted
from ctta.core.guard import Adapting
from ctta.core.inputs import SLACK
from ctta.models import weights_hash
from ctta.running.asked_model import ask
from ctta.serving.messages import Floats
from ctta.serving.refusals import BAD, Refused
from ctta.serving.settings import ServeSettings


@dataclass(frozen=True)
class Served:
    """What clients need to know about the model."""

    name: str
    method: str
    shape: tuple[int, ...]  # of a sample
    classes: int
    class_names: tuple[str, ...]

    @property
    def clouds(self) -> bool:
        return len(self.shape) == 2

    @property
    def pictures(self) -> bool:
        return len(self.shape) == 3 and self.shape[0] in (1, 3)

    def check(self, x: Floats, most: int) -> None:
        """Refuse samples that the adapter would refuse: those of other requests may be in the same batch."""
        if x.shape[1:] != self.shape or not 0 < len(x) <= most:
            shape = ", ".join(map(str, self.shape))
            raise Refused(BAD, f"Samples must have shape (N, {shape}), with N from 1 to {most}. Got {x.shape}.")
        low, high = float(x.min()), float(x.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise Refused(BAD, "The samples hold NaN or infinity. Nothing was learned from them.")
        if self.pictures and not -SLACK <= low <= high <= 1 + SLACK:
            raise Refused(
                BAD, f"Pixels must lie in [0, 1]. These lie in [{low:.3g}, {high:.3g}]. Send 8-bit values as UINT8."
            )


def open_served(settings: ServeSettings) -> tuple[Adapting, Served, dict[str, Any]]:
    """The adapter, what clients need to know, and what must be the same for states to be used again."""
    asked = ask(
        settings.model,
        method=settings.method,
        preset=settings.preset,
        changes=settings.changes,
        weights=settings.weights,
        mean=settings.mean,
        std=settings.std,
        size=settings.size,
        batch=settings.batch,
        seed=settings.seed,
        classes=settings.classes,
        guard=settings.guard,
        device=settings.device,
    )
    if asked.size is None:
        raise ConfigError(f"The size of the images is not known for {quoted(settings.model)}. Give --size 224.")
    shape = (asked.size, 3) if asked.clouds else (settings.channels, asked.size, asked.size)
    cell, adapter = asked.adapter((settings.batch, *shape), detect=settings.detect)
    asked.warn_of_normalization()
    device, dtype = adapter.placement
    adapter.predict(torch.full((2, *shape), 0.5, device=device, dtype=dtype))  # does it take such samples?
    names = asked.class_names(adapter.classes)
    about: dict[str, Any] = {"model": weights_hash(asked.network), "method": settings.method}
    about |= {"config": dict(cell.config), "seed": settings.seed, "guard": settings.guard}
    about |= {"detect": settings.detect, "shape": list(shape)}
    return adapter, Served(settings.name, settings.method, shape, adapter.classes, names), about
