"""Pictures of several domains, each in a folder of class folders: `folders: {art: PACS/art, photo: PACS/photo}`.

This is how domain-adaptation sets are published: DomainNet, VisDA-C, Office-Home, PACS; also ImageNet-A and -Sketch. A
place may also be a text file of `picture label` lines, as DomainNet-126 and VisDA-C have them. Pictures are then named
from the path, or without one from the folder of the list.

Classes are those of all domains together. If they are wnids of ILSVRC, the model's 1,000 logits are scored on those
that occur, as the papers of ImageNet-A and -R do. `ctta.data.folders` describes the order and the labels of pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ctta.base.errors import InputError
from ctta.base.fileio import hashed, home, read_lines, some
from ctta.base.limits import CLASSES
from ctta.data.dataset import Data, DataSet
from ctta.data.folders import chosen, class_indices, found_in, labels_of, listed, listing, unusable, wnids
from ctta.data.pictures import Fit, Pictures
from ctta.data.stream import AHEAD, Domain, Labels, Stream


@dataclass(frozen=True)
class PictureDomain:
    """The pictures of a domain, all that there are, and their labels if a list gives them."""

    root: Path
    names: tuple[str, ...]
    labels: Mapping[str, int] | None = None
    note: str = ""

    def classes(self) -> set[str]:
        return {name.partition("/")[0] for name in self.names} if self.labels is None else set()


def natural_stream(data: Data, places: Mapping[str, Path], fit: Fit, root: Path | None = None) -> Stream:
    """Return a stream over pictures in class folders or lists, one place per domain."""
    found = {
        name: _read_list(place, root) if place.is_file() else _read_folder(place) for name, place in places.items()
    }
    kinds = {domain.labels is None for domain in found.values()}
    if len(kinds) > 1:
        raise InputError("Some domains are folders and some are lists. Give all as folders, or all as lists.")
    notes = [domain.note for domain in found.values() if domain.note]
    classes: tuple[str, ...] = ()
    scored: tuple[int, ...] = ()
    if kinds == {True}:
        folders = sorted(set.union(*(domain.classes() for domain in found.values())))
        indices, classes = class_indices(data, folders, next(iter(places.values())).parent)
        for name, domain in found.items():
            if lacking := [folder for folder in folders if folder not in domain.classes()]:
                notes.append(f"The domain {name} lacks {len(lacking)} of {len(folders)} classes: {some(lacking, 3)}.")
        if classes == wnids() and len(folders) < len(classes):
            scored = tuple(indices[folder] for folder in folders)
            notes.append(f"{len(folders)} of the 1,000 classes of ILSVRC are in the folders; only those are scored.")
    domains, contents = [], []
    for name, domain in found.items():
        names = chosen(data, domain.names)
        if problems := listed(unusable(domain.root, names)):
            raise InputError(f"{places[name]} lacks pictures. {problems} {found_in(domain.root)}")
        labels = _listed_labels(names, domain.labels) if domain.labels else labels_of(names, indices, domain.root)
        pictures = Pictures(domain.root, names, fit)
        contents.append(f"{name} {pictures.fingerprint()}")
        domains.append(Domain(name, 0, labels, pictures.__getitem__))
    return Stream(tuple(domains), data.batch, classes, scored, tuple(notes), fingerprint=hashed(*contents), ahead=AHEAD)


def _read_folder(place: Path) -> PictureDomain:
    names, note = listing(place)
    return PictureDomain(place, tuple(names), note=note)


def _read_list(place: Path, root: Path | None) -> PictureDomain:
    """Read the lines of a list: a picture, and its label after the last space."""
    labels = {}
    for line in read_lines(place, "a list of pictures"):
        name, _, label = line.rpartition(" ")
        if not name or not label.isdecimal() or int(label) >= CLASSES:
            raise InputError(f"{place} must have lines such as 'clipart/bird/bird_1.jpg 7'. Got {line[:60]!r}.")
        labels[name] = int(label)
    if not labels:
        raise InputError(f"{place} names no pictures. Give lines such as 'clipart/bird/bird_1.jpg 7'.")
    return PictureDomain(root or place.parent, tuple(labels), labels)


def _listed_labels(names: tuple[str, ...], labels: Mapping[str, int]) -> Labels:
    return np.array([labels[name] for name in names], np.int64)


def _open(data: Data, domains: tuple[tuple[str, int], ...]) -> Stream:
    root, folders = None if data.path is None else data.folder, data.folders or {}
    wanted = dict.fromkeys(name for name, _ in domains)
    places = {name: (root or Path()) / home(folders[name]) for name in wanted}
    stream = natural_stream(data, places, FOLDERS.fit(data), root)
    by_name = {domain.name: domain for domain in stream.domains}
    return replace(stream, domains=tuple(by_name[name] for name, _ in domains))


FOLDERS = DataSet(
    "own domains",
    "folders: {art: path/of/art, photo: path/of/photo}, each with class folders, or a list of 'picture label' lines.",
    _open,
    needs_path=False,
    domains={"paper": ("the keys of folders",)},
    holds="natural",
    preprocessing="resize256",
    uses=("folders", "preprocessing", "size", "labels"),
)
