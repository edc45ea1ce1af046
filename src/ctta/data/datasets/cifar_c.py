"""CIFAR-10-C and CIFAR-100-C in their public format, which `ctta corrupt` also writes; their C-bar sets are like them.

    <corruption>.npy   uint8 (5 N, 32, 32, 3), severities stacked in order, N images each
    labels.npy         (5 N,) or (N,)

Files are memory-mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint
from ctta.data.corruptions import SEVERITIES
from ctta.data.dataset import Data, DataSet
from ctta.data.pictures import Images
from ctta.data.stored import ENDS, found_arrays, map_arrays
from ctta.data.stream import Domain, Labels, Stream

SIZE = 32
MANY = 1000  # labels; of CIFAR-100, so many are not all below 10
PUBLIC = {10: "zenodo.org/records/2535967", 100: "zenodo.org/records/3555552"}
NAMES_BAR = (
    *("blue_noise_sample", "brownish_noise", "checkerboard_cutout", "inverse_sparkles", "pinch_and_twirl", "ripple"),
    *("circular_motion_blur", "lines", "sparkles", "transverse_chromatic_abberation"),
)


def cifar_c_stream(
    num_classes: int, data: Data, domains: Sequence[tuple[str, int]], title: str = "C", public: str = ""
) -> Stream:
    """Return a stream over (corruption, severity) pairs of a CIFAR-C folder."""
    folder = data.folder
    names = list(dict.fromkeys(f"{name}.npy" for name, _ in domains))
    wanted = [*names, "labels.npy"]
    arrays, problems = map_arrays(folder, wanted)
    labels = arrays.pop("labels.npy", None)
    if labels is not None:
        problems += _label_problems(labels, num_classes)
    for name, images in arrays.items():
        severities = {severity for domain, severity in domains if f"{domain}.npy" == name}
        problems += _image_problems(name, images, labels, severities)
    if problems or labels is None:
        raise InputError(
            "\n".join(
                [
                    f"{folder} cannot be used as CIFAR-{num_classes}-{title}.",
                    *problems,
                    f"{found_arrays(folder)} The public set is {public or PUBLIC[num_classes]}: give the folder with "
                    "the .npy files.",
                ]
            )
        )
    made = [_domain(name, severity, arrays[f"{name}.npy"], labels, data) for name, severity in domains]
    return Stream(tuple(made), data.batch, fingerprint=fingerprint(folder, wanted, ENDS))


def _label_problems(labels: NDArray[Any], num_classes: int) -> Iterator[str]:
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or not len(labels):
        yield f"labels.npy must hold whole numbers (N,) or (5 N,). Got {labels.dtype} {labels.shape}."
        return
    low, high = int(labels.min()), int(labels.max())
    if num_classes == 10 and 10 <= high < 100:
        yield f"labels.npy goes up to {high}: this is CIFAR-100-C. Write `dataset: cifar100_c`."
    elif num_classes == 100 and high < 10 and len(labels) >= MANY:
        yield f"labels.npy goes up to {high} only: this is CIFAR-10-C. Write `dataset: cifar10_c`."
    elif low < 0 or high >= num_classes:
        yield f"labels.npy must hold 0 to {num_classes - 1}. It goes from {low} to {high}."


def _image_problems(
    name: str, images: NDArray[Any], labels: NDArray[Any] | None, severities: set[int]
) -> Iterator[str]:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) % len(SEVERITIES):
        got = f"{images.dtype} {images.shape}"
        yield f"{name} must be uint8 (5 N, {SIZE}, {SIZE}, 3), five severities stacked. Got {got}."
        return
    if images.shape[1:3] != (SIZE, SIZE):
        yield (
            f"{name} holds images of {images.shape[1]} x {images.shape[2]} pixels, not {SIZE} x {SIZE}. For images of "
            "your own, the data set 'arrays' corrupts them on the fly."
        )
    count = len(images) // len(SEVERITIES)
    if labels is not None and len(labels) not in (count, len(images)):
        yield f"labels.npy has {len(labels)} entries; {name} needs {count} or {len(images)}."
    for severity in sorted(severities):
        block = images[(severity - 1) * count : severity * count]
        if len(block) and not block[[0, count // 2, -1]].any():
            yield f"{name} is black at severity {severity}: it was made without this severity."


def _domain(name: str, severity: int, stored: Images, labels: Labels, data: Data) -> Domain:
    count = len(stored) // len(SEVERITIES)
    rows, start = data.rows(count), (severity - 1) * count
    named = np.resize(labels, len(stored))[start:][rows].astype(np.int64)  # once per severity
    return Domain(name, severity, named, stored[start:][rows].__getitem__)


FOLDER = "the folder with the .npy files, one per corruption, and labels.npy."
CIFAR10_C = DataSet("CIFAR-10-C", FOLDER, partial(cifar_c_stream, 10), holds="corrupted", num_classes=10)
CIFAR100_C = DataSet("CIFAR-100-C", FOLDER, partial(cifar_c_stream, 100), holds="corrupted", num_classes=100)
DOMAINS_BAR = dict.fromkeys(("paper", "all"), NAMES_BAR)
BAR = partial(cifar_c_stream, title="C-bar", public="made by github.com/facebookresearch/augmentation-corruption")
CIFAR10_C_BAR = replace(CIFAR10_C, title="CIFAR-10-C-bar", open=partial(BAR, 10), domains=DOMAINS_BAR)
CIFAR100_C_BAR = replace(CIFAR100_C, title="CIFAR-100-C-bar", open=partial(BAR, 100), domains=DOMAINS_BAR)
