"""What the corruptions of images and of point clouds share: checks, random generators and threads of a domain.

Randomness is a function of (seed, corruption, severity, index of the sample in its domain) and of nothing else. So a
sample is bit for bit the same in every batch, on every worker and in every run.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import quoted

Made = TypeVar("Made")
Generators: TypeAlias = Sequence[Generator]  # one per sample

SEVERITIES = (1, 2, 3, 4, 5)
THREADS = 4


def check_domain(name: str, names: Collection[str], severity: int, seed: int) -> None:
    """Raise an error for a corruption, a severity or a seed that does not exist."""
    if not isinstance(name, str) or name not in names:
        raise ConfigError(f"No corruption is called {quoted(name)}. {nearest(name, names)}")
    if not _is_integer(severity) or severity not in SEVERITIES:
        raise ConfigError(f"The severity must be one of 1, 2, 3, 4, 5. Got {quoted(severity)} instead.")
    if not _is_integer(seed) or seed < 0:
        raise ConfigError(f"`seed` must be a whole number of at least 0. Got {quoted(seed)} instead.")


def sample_indices(first: int | NDArray[np.int64], count: int) -> Sequence[int]:
    """Return the indices of `count` samples in their domain, from the first one or from one index per sample."""
    if isinstance(first, np.ndarray):
        if first.shape != (count,) or first.dtype.kind not in "iu" or (first < 0).any():
            raise ConfigError("`first` as an array needs one whole number of at least 0 for every sample.")
        return [int(index) for index in first]
    if not _is_integer(first) or first < 0:
        raise ConfigError(f"`first` must be a whole number of at least 0. Got {quoted(first)} instead.")
    return range(first, first + count)


def domain_key(name: str, severity: int, seed: int) -> NDArray[np.uint64]:
    """Return the key of the random generators of a domain. Each sample adds its index as the counter."""
    return np.asarray(SeedSequence([seed, zlib.crc32(name.encode()), severity]).generate_state(2, np.uint64), np.uint64)


def sample_generators(key: NDArray[np.uint64], indices: Sequence[int]) -> list[Generator]:
    """Return one generator per sample."""
    # Philox counts in 256 bits. The top 64 hold the index of the sample, so two samples never share draws.
    return [Generator(Philox(key=key, counter=[0, 0, 0, index])) for index in indices]


def in_chunks(
    make: Callable[[slice, Generators], Made], key: NDArray[np.uint64], indices: Sequence[int], size: int
) -> list[Made]:
    """Call `make` for every chunk of `size` samples with their generators, on several threads if there are several."""

    def work(start: int) -> Made:
        chunk = slice(start, start + size)
        return make(chunk, sample_generators(key, indices[chunk]))

    starts = range(0, len(indices), size)
    if len(starts) < 2:
        return [work(start) for start in starts]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1, len(starts))) as pool:
        return list(pool.map(work, starts))


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
