"""CCC, continuously changing corruptions, as its tar shards: the order of the pictures in them is the stream.

    <path>/serial_00000.tar, serial_00001.tar ...     one folder per baseline, transition speed and seed
        sample_<i>.input.jpg, sample_<i>.output.cls   a picture of 224 pixels and its label, 0 to 999

Shards are read where they lie, and never unpacked. To know the labels, the heads of all shards that `images` asks for
are read once: a few minutes for all 7.5 million pictures. There is one domain, `ccc`, without severity. The public
set: github.com/oripress/CCC.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctta.base.errors import InputError
from ctta.base.fileio import fingerprint, reading
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import found_in, wnids
from ctta.data.pictures import CONVENTIONS, Images, read_picture
from ctta.data.stream import AHEAD, Domain, Rows, Stream

DOMAIN = "ccc"
PICTURE, LABEL = ".input.jpg", ".output.cls"
EXPECTED = "a shard of CCC, an uncompressed tar"
LABEL_BYTES = 16  # at most
PUBLIC = (
    "The public set is at github.com/oripress/CCC: give the folder of one stream, such as "
    "baseline_20_transition+speed_1000_seed_43, with its serial_*.tar files."
)


@dataclass(frozen=True)
class Shards:
    """Pictures in tar files, each by its shard, its place there and its length."""

    paths: tuple[Path, ...]
    places: NDArray[np.int64]  # (N, 3)

    def __getitem__(self, rows: Rows) -> Images:
        return np.stack([self._read(*self.places[row].tolist()) for row in rows])

    def _read(self, shard: int, offset: int, size: int) -> Images:
        path = self.paths[shard]
        with reading(path, EXPECTED), path.open("rb") as file:
            file.seek(offset)
            return CONVENTIONS["none"](read_picture(path, content=file.read(size)))


def _samples(path: Path) -> Iterator[tuple[int, int, int]]:
    """Yield place, length and label of each picture of a shard, in order."""
    pictures: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    with reading(path, EXPECTED), tarfile.open(path, "r:") as shard:
        for member in shard:
            if member.name.endswith(PICTURE) and member.isreg():
                pictures[member.name.removesuffix(PICTURE)] = (member.offset_data, member.size)
            elif member.name.endswith(LABEL) and member.isreg():
                stored = shard.extractfile(member)
                text = stored.read(LABEL_BYTES).decode(errors="replace").strip() if stored else ""
                if not text.isdecimal() or int(text) >= len(wnids()):
                    raise InputError(f"{member.name} must hold a label, 0 to {len(wnids()) - 1}. It holds {text!r}.")
                labels[member.name.removesuffix(LABEL)] = int(text)
        if alone := sorted(pictures.keys() ^ labels.keys()):
            raise InputError(f"{alone[0]} has no label, or no picture.")
        if not pictures:
            raise InputError(f"It holds no *{PICTURE} with its *{LABEL}.")
    return ((*place, labels[name]) for name, place in pictures.items())


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root, found = data.folder, list[tuple[int, int, int, int]]()
    paths = tuple(sorted(root.glob("*.tar")))
    if not paths:
        raise InputError(f"{root} cannot be used as CCC: it has no .tar file. {found_in(root)} {PUBLIC}")
    used = 0
    for used, path in enumerate(paths, start=1):
        found += [(used - 1, *sample) for sample in _samples(path)]
        if data.images is not None and len(found) >= data.first + data.images:
            break
    chosen = np.array(found, np.int64)[data.rows(len(found))]
    shards = Shards(paths[:used], chosen[:, :3])
    domain = Domain(DOMAIN, 0, chosen[:, 3].copy(), shards.__getitem__)
    identity = fingerprint(root, [path.name for path in paths[:used]])
    return Stream((domain,) * len(domains), data.batch, wnids(), fingerprint=identity, ahead=AHEAD)


CCC = DataSet(
    "CCC",
    "the folder of one stream with its serial_*.tar files.",
    _open,
    domains={"paper": (DOMAIN,), "all": (DOMAIN,)},
    holds="natural",
)
