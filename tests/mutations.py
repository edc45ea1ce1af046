"""Damage to files: the content of a small valid file, cut, flipped, overwritten, lengthened; the same for each seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from ctta.base.errors import CttaError


def mutated(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield `count` damaged versions. Half of the places are in the first and last bytes, where the structure is."""
    random = np.random.default_rng(seed)
    for number in range(count):
        near = random.integers(0, min(256, len(content)))
        place = int((near, len(content) - 1 - near, *random.integers(0, len(content), 2))[random.integers(4)])
        length = int(random.integers(1, 17))
        noise = random.bytes(length)
        yield (
            content[:place],
            content[:place] + bytes([content[place] ^ 1 << int(random.integers(8))]) + content[place + 1 :],
            content[:place] + noise + content[place + length :],
            content[:place] + noise + content[place:],
            content[:place] + b"\xff" * 8 + content[place + 8 :],
            content[:place] + content[place + length :],
        )[number % 6]


def refused_of(contents: Iterable[bytes], path: Path, read: Callable[[Path], object]) -> int:
    """Return how many of the files are refused; `read` checks what was read, and an error must name the file."""
    refused = 0
    for content in contents:
        path.write_bytes(content)
        try:
            read(path)
        except CttaError as error:
            if path.name not in str(error):
                raise
            refused += 1
    return refused
