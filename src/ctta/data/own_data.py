"""Data of one's own: a function that returns a `ctta.Stream`, or a torch `Dataset` per domain.

    def make():                      # or make(path), if the configuration gives a path
        return {"day": DayDataset(), "night": NightDataset()}

A dataset gives (image, label): an image is a PIL image, a uint8 array or tensor, or float32 (3, H, W) in [0, 1]; a
point cloud is float32 (P, 3); the label is a whole number, -1 if it is not known. If it has `targets` or `labels`, as
torchvision's have, it is read only where it is needed. The size of batches, the first sample and their number are
those of the configuration, for a stream as well.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ctta.base import own_code
from ctta.base.errors import InputError
from ctta.base.fileio import hashed
from ctta.base.text import one_line, quoted
from ctta.data.combine import reordered
from ctta.data.dataset import Data, DataSet
from ctta.data.stream import Domain, Labels, Rows, Samples, Stream

UNKNOWN = -1  # the label of a sample without one
WANTED = "a function that returns a ctta.Stream, or a mapping from domains to torch Datasets"


def own_dataset(name: str, place: str, path: str | None) -> DataSet:
    """Run the function and describe what it returns; it is run once, as long as its file and its path stay the same."""
    with own_code.usable("data set", name, WANTED):
        return _described(name, own_code.load(place), path)


@lru_cache(maxsize=2)
def _described(name: str, make: Callable[..., Any], path: str | None) -> DataSet:
    stream = _made(make, path)
    domains, sample = tuple(domain.name for domain in stream.domains), stream.domains[0].read(np.arange(1))
    if (sample.dtype != np.uint8 and sample.dtype.kind != "f") or sample.ndim not in (3, 4):
        raise TypeError(f"a sample is {sample.dtype} {sample.shape[1:]}, and should be an image or a point cloud")
    return DataSet(
        name,
        "what its function wants, if anything.",
        partial(_open, stream),
        needs_path=False,
        domains={"paper": domains, "all": domains},
        holds="natural",
        samples="clouds" if sample.ndim == 3 else "images",
    )


def _made(make: Callable[..., Any], path: str | None) -> Stream:
    made = make() if path is None else make(path)
    if isinstance(made, Mapping):
        domains = tuple(_domain(name, dataset) for name, dataset in made.items())
        classes = {tuple(getattr(dataset, "classes", ())) for dataset in made.values()}
        made = Stream(domains, 1, classes.pop() if len(classes) == 1 else ())
    if not isinstance(made, Stream):
        raise TypeError(f"it returned {type(made).__name__}")
    counts = Counter(domain.name for domain in made.domains)
    for name, count in counts.items():
        if not isinstance(name, str) or not name or one_line(name) != name:
            raise ValueError(f"the name of a domain is a text on one line, and one is {quoted(name)}")
        if count > 1:
            raise ValueError(f"{count} domains are called {quoted(name)}; give each a name, and repeat by a protocol")
    if empty := [domain.name for domain in made.domains if not len(domain)]:
        raise ValueError(f"the domain {quoted(empty[0])} has no samples")
    if not counts:
        raise ValueError("it returned no domains")
    contents = (f"{domain.name} {hashlib.sha256(domain.labels.tobytes()).hexdigest()}" for domain in made.domains)
    return replace(made, fingerprint=made.fingerprint or hashed(own_code.source_hash(make), *contents))


def _open(stream: Stream, data: Data, pairs: tuple[tuple[str, int], ...]) -> Stream:
    by_name = {domain.name: domain for domain in stream.domains}
    chosen = [by_name[name] for name, _ in pairs]
    rows = [np.arange(len(domain))[data.rows(len(domain))] for domain in chosen]
    return replace(stream, domains=tuple(map(reordered, chosen, rows)), batch=data.batch)


def _domain(name: str, dataset: Any) -> Domain:
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(f"the domain {quoted(name)} is {type(dataset).__name__}, which has no items to choose from")
    labels = _labels(dataset)
    return Domain(name, 0, labels, partial(_read, name, dataset, labels))


def _labels(dataset: Any) -> Labels:
    """All labels; without an attribute that has them, every item is read once."""
    if isinstance(dataset, torch.utils.data.Subset):
        return _labels(dataset.dataset)[np.asarray(dataset.indices, np.int64)]
    if not len(dataset):
        raise ValueError("it has no samples")
    given = next((getattr(dataset, name) for name in ("targets", "labels") if hasattr(dataset, name)), None)
    labels = np.asarray([dataset[row][1] for row in range(len(dataset))] if given is None else given)
    if labels.dtype.kind not in "iu" or labels.size != len(dataset) or labels.min(initial=0) < UNKNOWN:
        raise ValueError(f"labels must be whole numbers, one per sample, -1 if not known; they are {quoted(labels)}")
    return labels.astype(np.int64).reshape(-1)


def _read(name: str, dataset: Any, labels: Labels, rows: Rows) -> Samples:
    samples = []
    for row in rows.tolist():
        x, y = dataset[row]
        if int(y) != labels[row]:
            raise InputError(
                f"Item {row} of the domain {quoted(name)} has the label {int(y)}, and its `targets` say {labels[row]}. "
                "Take away what changes labels on the way, such as a target_transform, or the `targets`."
            )
        samples.append(_array(x))
    shapes = list(dict.fromkeys(sample.shape for sample in samples))
    if len(shapes) > 1:
        raise InputError(
            f"The samples of the domain {quoted(name)} differ in shape: {shapes[0]} and {shapes[1]}. Resize and crop "
            "them in the dataset's transform."
        )
    return np.stack(samples)


def _array(x: Any) -> NDArray[Any]:
    """One sample: images as uint8 (H, W, 3) or float32 (3, H, W), point clouds as float32 (P, 3)."""
    if isinstance(x, Image.Image):
        return np.asarray(x.convert("RGB"))
    if isinstance(x, torch.Tensor):
        array: NDArray[Any] = x.detach().cpu().numpy()
        return array.transpose(1, 2, 0) if array.dtype == np.uint8 and array.ndim == 3 else array
    return np.asarray(x)
