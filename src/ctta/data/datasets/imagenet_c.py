"""ImageNet-C in its public layout: <path>/<corruption>/<severity>/<wnid>/<name>.JPEG.

The archives unpack into noise/, blur/, weather/, digital/ and extra/; this level may be kept or removed. There are two
conventions of preprocessing. Their results are not comparable, so the title names the convention:

    resize256   the stored 224 pixels are resized to 256 and the middle 224 are cropped (the paper's; the default)
    none        the stored 224 pixels are used as they are

`ctta.data.folders` describes the choice, the order and the labels of pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta.base.errors import InputError
from ctta.base.fileio import hashed, some
from ctta.data.corruptions import NAMES
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import chosen, class_folders, class_indices, found_in, labels_of, listed, listing, unusable
from ctta.data.pictures import Pictures
from ctta.data.stream import AHEAD, Domain, Stream

PUBLIC = (
    "The public set is zenodo.org/records/2235448: unpack the archives and give the folder with noise/, blur/, "
    "weather/, digital/ and extra/, or with the corruptions themselves."
)


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root = data.folder
    places = {pair: _place(root, *pair) for pair in domains}
    absent = [f"{name}/{severity}" for (name, severity), place in places.items() if place is None]
    there = [place for place in places.values() if place is not None]
    available, odd, notes = _available(there) if data.list is None else (set(), [], [])
    names = chosen(data, sorted(available)) if there else ()
    kinds = unusable(root, (str(place.relative_to(root) / name) for place in there for name in names))
    kinds["Missing"] = absent + kinds["Missing"]
    if problems := " ".join(filter(None, [*odd, listed(kinds)])):
        raise InputError(f"{root} is not a complete ImageNet-C. {problems} {_found(root)} {PUBLIC}")
    indices, classes = class_indices(data, (name for place in there for name in class_folders(place)), root)
    labels = labels_of(names, indices, root)
    pictures = {pair: Pictures(place, names, IMAGENET_C.fit(data)) for pair, place in zip(places, there, strict=True)}
    made = tuple(Domain(*pair, labels, pictures[pair].__getitem__) for pair in domains)
    identity = hashed(*(f"{pair} {pictures[pair].fingerprint()}" for pair in sorted(pictures)))
    return Stream(made, data.batch, classes, notes=tuple(notes), fingerprint=identity, ahead=AHEAD)


def _place(root: Path, name: str, severity: int) -> Path | None:
    """Return the folder of a domain, below the root or one level deeper."""
    candidates = [root / name / str(severity), *sorted(root.glob(f"*/{name}/{severity}"))]
    return next((place for place in candidates if place.is_dir()), None)


def _available(places: Sequence[Path]) -> tuple[set[str], list[str], list[str]]:
    """Return the pictures of all domains together, what is wrong with a domain as a whole, and what was left out."""
    available, odd, notes = set(), [], []
    for place in places:
        try:
            names, note = listing(place)
            available.update(names)
            notes += [note] if note else []
        except InputError as error:
            odd.append(str(error))
    return available, odd, notes


def _found(root: Path) -> str:
    """Describe which domains exist, or what the folder holds instead."""
    places = sorted(place for pattern in ("*/[1-5]", "*/*/[1-5]") for place in root.glob(pattern))
    domains = [f"{place.parent.name}/{place.name}" for place in places if place.parent.name in NAMES]
    return f"Found: {some(domains, 20)}." if domains else found_in(root)


IMAGENET_C = DataSet(
    "ImageNet-C",
    "the folder with the corruptions, <corruption>/<severity>/<wnid>/*.JPEG.",
    _open,
    holds="corrupted",
    preprocessing="resize256",
    uses=("preprocessing", "size", "list", "labels"),
)
