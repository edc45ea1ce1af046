"""A few samples per domain as small pictures for the report: images as they are, point clouds drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta.core.guard import Adapting
from ctta.records.run_folder import RunFolder, Samples
from ctta.running.runner import Evaluated

SHOWN = 6  # samples per domain
SEGMENTS = 30  # of a long stream, samples of the first segments are kept
CHANGED = 24  # samples whose prediction changed, along a stream without labels
SIZE = 96  # pixels of a drawn point cloud
REACH = 1.6  # coordinates that fit into the picture, either way; more if a point cloud needs it
AROUND, ABOVE = np.radians([35.0, 25.0])  # where the eye is: about the up axis, and over the horizon
PAPER = (255, 255, 255)
NEAR, FAR = np.array([16, 42, 92]), np.array([190, 208, 232])
DOT = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if row * column == 0]  # a plus of five pixels


@dataclass
class Gallery:
    """A few samples of the last batch of every domain, with the predictions before and after adaptation."""

    kept: dict[int, dict[str, Any]] = field(default_factory=dict, kw_only=True)  # by position in the stream

    def keep(self, adapter: Adapting, evaluated: Evaluated) -> None:
        """Keep samples of this batch if it is the last of its domain."""
        batch = evaluated.batch
        if not batch.last or batch.position >= SEGMENTS:
            return
        n = min(SHOWN, len(batch.x))
        source = batch.answer(adapter.source(evaluated.x[:n])).cpu()
        self.kept[batch.position] = _rows(evaluated, list(range(n)), source)

    def samples(self) -> Samples | None:
        """All that was kept, in the order of the stream; None if it is nothing."""
        rows = [self.kept[position] for position in sorted(self.kept)]
        return Samples(**{name: np.concatenate([row[name] for row in rows]) for name in rows[0]}) if rows else None

    def write(self, folder: RunFolder, cell: str) -> None:
        if samples := self.samples():
            folder.write_samples(cell, samples)

    @classmethod
    def before(cls, samples: Samples | None, position: int) -> Gallery:
        """What an earlier attempt kept of the domains before this one."""
        kept: dict[int, dict[str, Any]] = {}
        if samples is not None:
            known = {name: values for name, values in asdict(samples).items() if len(values)}
            for one in set(samples.position[samples.position < position].tolist()):
                kept[one] = {name: values[samples.position == one] for name, values in known.items()}
        return cls(kept=kept)


@dataclass
class ChangedGallery(Gallery):
    """Samples whose prediction is not the unadapted model's, at most one of a batch, spread along the stream."""

    names: Callable[[int], Sequence[str]]  # the names of the samples of a batch, by its number
    every: int = 1  # of the batches with such a sample, one of so many is kept
    seen: int = 0

    def keep(self, adapter: Adapting, evaluated: Evaluated) -> None:
        """Keep the first such sample of this batch, if it is its turn."""
        if evaluated.source is None or not len(changed := (evaluated.prediction != evaluated.source).nonzero()):
            return
        if self.seen % self.every == 0:
            index = int(changed[0])
            step, rows = evaluated.batch.step, _rows(evaluated, [index], evaluated.source[index : index + 1])
            self.kept[step] = {**rows, "name": np.array([self.names(step)[index]])}
        self.seen += 1
        if len(self.kept) > CHANGED:
            for step in sorted(self.kept)[1::2]:
                del self.kept[step]
            self.every *= 2


def _rows(evaluated: Evaluated, indices: list[int], source: Tensor) -> dict[str, Any]:
    """What is kept of some samples of a batch; `source` are the unadapted model's predictions for them."""
    batch, selected = evaluated.batch, evaluated.selected
    return {
        "images": as_pictures(batch.x[indices]),
        "position": np.full(len(indices), batch.position),
        "label": batch.y[indices].numpy(),
        "source": source.numpy(),
        "adapted": evaluated.prediction[indices].numpy(),
        "confidence": evaluated.confidence[indices].numpy(),
        "selected": np.full(len(indices), -1) if selected is None else selected[indices].long().numpy(),
    }


def as_pictures(x: Tensor) -> NDArray[np.uint8]:
    """Turn images (M, 3, H, W) or (M, 1, H, W) in [0, 1] or point clouds (M, P, 3) into uint8 (M, H, W, 3)."""
    if x.dim() == 3:
        return np.stack([draw_cloud(cloud) for cloud in x.double().numpy()])
    pictures: NDArray[np.uint8] = (x * 255).round().to(torch.uint8).expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    return pictures


def draw_cloud(points: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Draw (P, 3), y up, seen from far away, a little from above; near points are darker and cover those behind."""
    sin, cos = np.sin(AROUND), np.cos(AROUND)
    rightwards = np.array([cos, 0.0, -sin])
    to_eye = np.array([sin * np.cos(ABOVE), np.sin(ABOVE), cos * np.cos(ABOVE)])
    right, up, towards = (points @ np.stack([rightwards, np.cross(to_eye, rightwards), to_eye], 1)).T
    order = np.argsort(towards)
    scale = (SIZE - 1) / 2 / max(REACH, np.abs([right, up]).max())
    column, row = ((SIZE - 1) / 2 + scale * np.stack([right, -up]))[:, order].round().astype(int)
    shade = (towards[order] - towards.min()) / (np.ptp(towards) or 1.0)
    colour = (FAR + shade[:, None] * (NEAR - FAR)).round().astype(np.uint8)
    picture = np.full((SIZE, SIZE, 3), PAPER, np.uint8)
    for down, along in DOT:
        picture[(row + down).clip(0, SIZE - 1), (column + along).clip(0, SIZE - 1)] = colour  # the last one stays
    return picture
