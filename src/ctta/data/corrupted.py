"""Clean labelled samples, corrupted on the fly.

Sample i of a domain is the same for every batch size, start and run. With `cache`, the samples of a domain are made
once and kept in a file, which is memory-mapped, so that memory stays bounded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ctta.base.errors import InputError
from ctta.base.fileio import make_folder, reading
from ctta.data.corruptions import corrupt
from ctta.data.corruptions.constants import preset_for
from ctta.data.dataset import CLEAN, Data
from ctta.data.pictures import Images, Pictures, through_jpeg
from ctta.data.stored import map_array
from ctta.data.stream import AHEAD, Domain, Labels, Rows, Samples, Stream

CHUNK = 500  # samples that are corrupted at a time while a cache is filled
FILLING = Lock()  # batches that are loaded ahead may need the same file


def corrupted_domains(
    pairs: Sequence[tuple[str, int]],
    clean: Domain,
    read: Callable[[Rows], Samples],
    apply: Callable[..., Samples],
    data: Data,
    first: int,
    settings: str,
    fingerprint: str,
) -> tuple[Domain, ...]:
    """Return a domain per (corruption, severity): `clean` at severity 0, otherwise what `apply` makes of read samples.

    `apply` takes samples, name, `severity` and `first`, the numbers of the samples in the data set, which begin with
    the argument `first`. `settings` are those of `apply`, and `fingerprint` identifies the samples, so that several
    data sets can share a cache.
    """
    count = len(clean)
    which = f"{first}-{count}" if first else str(count)

    def domain(name: str, severity: int) -> Domain:
        if not severity:
            return replace(clean, name=name)

        def corrupt(samples: Samples, rows: Rows) -> Samples:
            return apply(samples, name, severity=severity, first=first + rows)

        def make(rows: Rows) -> Samples:
            return corrupt(read(rows), rows)

        path = Path(data.cache or "") / f"{name}-{severity}-{settings}-{which}-{fingerprint}.npy"
        made = partial(_cached, path, make, count) if data.cache else make
        return Domain(name, severity, clean.labels, made, corrupt)

    return tuple(domain(name, severity) for name, severity in pairs)


def _cached(path: Path, make: Callable[[Rows], Samples], count: int, rows: Rows) -> Samples:
    """Read these rows from the file with the whole domain; write it if it does not exist."""
    with FILLING:
        if not path.exists():
            make_folder(path.parent)
            temporary = path.with_suffix(f".{os.getpid()}.part")
            sample = make(np.arange(1))
            made = np.lib.format.open_memmap(temporary, "w+", sample.dtype, (count, *sample.shape[1:]))
            for start in range(0, count, CHUNK):
                made[start : start + CHUNK] = make(np.arange(start, min(start + CHUNK, count)))
            made.flush()
            temporary.replace(path)
    with reading(path, "samples of an earlier run; delete it"):
        kept: Samples = map_array(path)
        images, clouds = (np.dtype(np.uint8), 4), (np.dtype(np.float32), 3)
        if (kept.dtype, kept.ndim) not in (images, clouds) or len(kept) != count or kept.shape[-1] != 3:
            raise InputError(f"It should hold {count} samples, but holds {kept.dtype} {kept.shape}. Delete it.")
        return kept[rows]


def corrupted_stream(
    images: Images | Pictures,
    labels: Labels,
    domains: Sequence[tuple[str, int]],
    data: Data,
    classes: Sequence[str] = (),
    fingerprint: str = "",
) -> Stream:
    """Return a stream over (corruption, severity) pairs, all made from the same clean images."""
    if isinstance(images, np.ndarray) and (images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3):
        raise InputError(f"Images must be uint8 (N, H, W, 3). Got {images.dtype} {images.shape}.")
    if len(images) != len(labels) or not len(images):
        raise InputError(f"There must be one label per image, and at least one. Got {len(images)} and {len(labels)}.")
    fingerprint = fingerprint or _fingerprint(images, labels)
    preset = data.constants or preset_for(*images[np.arange(1)].shape[1:3])
    first, ahead, jpeg = 0, 0, bool(data.jpeg)
    if isinstance(images, Pictures):  # which of them are used was decided when they were listed
        ahead, jpeg = AHEAD, preset == "imagenet" if data.jpeg is None else data.jpeg
    else:
        rows = data.rows(len(images))
        first, images, labels = rows.start, images[rows], labels[rows]
    read = images.__getitem__
    apply = partial(_corrupt_images, preset=preset, jpeg=jpeg, seed=data.seed)
    settings = f"{preset}{'-jpeg' * jpeg}-seed{data.seed}"
    clean = Domain(CLEAN, 0, labels, read)
    made = corrupted_domains(domains, clean, read, apply, data, first, settings, fingerprint)
    return Stream(made, data.batch, tuple(classes), fingerprint=fingerprint, ahead=ahead)


def _corrupt_images(images: Images, name: str, *, preset: str, jpeg: bool, **which: Any) -> Images:
    made = corrupt(images, name, preset=preset, **which)
    return np.stack([through_jpeg(image) for image in made]) if jpeg else made


def _fingerprint(images: Images | Pictures, labels: Labels) -> str:
    content = images.fingerprint().encode() if isinstance(images, Pictures) else np.ascontiguousarray(images).tobytes()
    return hashlib.sha256(content + labels.tobytes()).hexdigest()[:16]
