"""Streams of clean labelled point clouds, corrupted on the fly, and checks of their arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.data.corrupted import corrupted_domains
from ctta.data.corruptions import CLOUD_NAMES, corrupt_clouds
from ctta.data.corruptions.clouds import POINTS
from ctta.data.dataset import CLEAN, Data, DataSet
from ctta.data.stream import Domain, Rows, Samples, Stream

DOMAINS = {"paper": CLOUD_NAMES, "all": CLOUD_NAMES, CLEAN: (CLEAN,)}
CloudDataSet = partial(DataSet, domains=DOMAINS, samples="clouds")


def cloud_stream(
    clouds: NDArray[Any], labels: NDArray[Any], domains: Sequence[tuple[str, int]], data: Data, classes: Sequence[str]
) -> Stream:
    """Return a stream over (corruption, severity) pairs, all made from the same clean point clouds.

    A clean point cloud with more than 1024 points is cut to the first 1024. Corruptions draw as many from all of them.
    """
    clouds, labels = np.atleast_1d(clouds), np.atleast_1d(labels)
    if problems := [*cloud_problems(clouds), *label_problems(labels, len(clouds), len(classes))]:
        raise InputError(f"The point clouds of {data.path} cannot be used. {' '.join(problems)}")
    rows = data.rows(len(clouds))
    kept, named = clouds[rows].astype(np.float32), labels.reshape(-1)[rows].astype(np.int64)
    fingerprint = hashlib.sha256(kept.tobytes() + named.tobytes()).hexdigest()[:16]
    apply, settings = partial(corrupt_clouds, seed=data.seed), f"seed{data.seed}"
    clean = Domain(CLEAN, 0, named, kept[:, :POINTS].__getitem__)
    made = corrupted_domains(domains, clean, kept.__getitem__, apply, data, rows.start, settings, fingerprint)
    return Stream(made, data.batch, tuple(classes), fingerprint=fingerprint)


def cloud_problems(clouds: NDArray[Any]) -> Iterator[str]:
    """Yield what is wrong with an array of point clouds, as sentences."""
    if clouds.dtype.kind != "f" or clouds.ndim != 3 or clouds.shape[2] != 3 or not clouds.size:
        yield f"Point clouds must be floating point (N, P, 3). Got {clouds.dtype} {clouds.shape}."
        return
    with np.errstate(over="ignore"):
        finite = np.isfinite(clouds.astype(np.float32)).all((1, 2))
    if not finite.all():
        yield f"Point clouds hold NaN or infinity, first in number {np.argmin(finite)}."


def finite_rows(file: str, clouds: NDArray[Any], rows: Rows) -> Samples:
    """Return these rows of a file that is too long to be checked as a whole."""
    chosen: Samples = clouds[rows]
    if problems := " ".join(cloud_problems(chosen)):
        raise InputError(f"{file} cannot be used. {problems} (Counted from number {rows[0]}.)")
    return chosen


def label_problems(labels: NDArray[Any], clouds: int, classes: int) -> Iterator[str]:
    """Yield what is wrong with the labels of `clouds` point clouds; 0 classes means that their number is not known."""
    if labels.dtype.kind not in "iu" or labels.size != len(labels):
        yield f"Labels must be whole numbers (N,) or (N, 1). Got {labels.dtype} {labels.shape}."
    elif len(labels) != clouds:
        yield f"There must be one label per point cloud. Got {len(labels)} for {clouds}."
    elif len(labels) and (labels.min() < 0 or (classes and labels.max() >= classes)):
        last = f" to {classes - 1}" if classes else ""
        yield f"Labels must run from 0{last}. These run from {labels.min()} to {labels.max()}."
