"""What the folder data sets share: trees of class folders, the choice and order of pictures, ImageNet's classes.

Pictures   A `list` of class/name lines chooses them and their order (the public ImageNet-C protocol has one of 5,000
           pictures, which is part of the robustbench package). Without it, all pictures are used, in an order shuffled
           by the seed, so that the first few are a mixture of classes.
Labels     If all class folders are named by wnids, the index among the 1,000 classes of ILSVRC; else the position among
           the sorted names of the folders; or, on request, the names themselves, if they are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from stat import S_ISREG

import numpy as np

from ctta.base.errors import InputError
from ctta.base.fileio import home, read_lines, some
from ctta.base.limits import CLASSES
from ctta.data.dataset import Data
from ctta.data.pictures import PICTURES, files_below
from ctta.data.stream import Labels


@cache
def wnids() -> tuple[str, ...]:
    """Return the 1,000 classes of ILSVRC 2012 in the order of their index."""
    return tuple(files("ctta.assets").joinpath("imagenet_wnids.txt").read_text().split())


def listing(root: Path) -> tuple[list[str], str]:
    """Return all pictures in class folders as class/name, sorted, and a sentence on what was left out."""
    found, note = files_below(root)
    names = sorted(found)
    if loose := [name for name in names if "/" not in name]:
        raise InputError(f"{root} holds pictures outside of class folders: {some(loose, 3)}. Move each to its class.")
    if not names:
        raise InputError(
            f"{root} holds no class folders with pictures ({' '.join(PICTURES)}). {found_in(root)} {note}".rstrip()
        )
    return names, note


def class_folders(root: Path) -> list[str]:
    """Return the class folders, with or without pictures."""
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


def chosen(data: Data, available: Sequence[str]) -> tuple[str, ...]:
    """Return the pictures to use, in order."""
    if data.list is not None:
        path = home(data.list)
        names = read_lines(path, "a list of pictures")
        if not names or not all("/" in name for name in names):
            raise InputError(f"{path} must be a list of pictures, one class/name per line.")
    else:
        order = np.random.default_rng(data.seed).permutation(len(available))
        names = [available[i] for i in order]
    return tuple(names[data.rows(len(names))])


def class_indices(data: Data, folders: Iterable[str], where: Path) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """Return the label of each class folder, and the names of all classes."""
    folders, known = sorted(set(folders)), set(wnids())
    if data.labels == "numbers":
        return _numbered(folders, where)
    if data.labels is None and all(map(str.isdecimal, folders)) and folders != sorted(folders, key=int):
        raise InputError(
            f"The class folders of {where} are numbers, which sorted as texts come as {some(folders, 4)}. Give "
            "`labels: numbers` if a label is the number of its folder, or `labels: sorted` if it is the position among "
            "the sorted texts."
        )
    strange = [folder for folder in folders if folder not in known]
    if data.labels == "sorted" or (data.labels is None and len(strange) == len(folders)):
        return {folder: index for index, folder in enumerate(folders)}, tuple(folders)
    if strange:
        raise InputError(
            f"{where} holds class folders that are no wnids of ILSVRC: {some(strange, 3)}. Move them away, or give "
            "`labels: sorted` if a label is the position among the sorted names."
        )
    return {wnid: index for index, wnid in enumerate(wnids())}, wnids()


def _numbered(folders: Sequence[str], where: Path) -> tuple[Mapping[str, int], tuple[str, ...]]:
    strange = [folder for folder in folders if not folder.isdecimal() or int(folder) >= CLASSES]
    indices = {folder: int(folder) for folder in folders if folder not in strange}
    if strange or len(set(indices.values())) < len(folders):
        found = some(strange or list(folders))
        raise InputError(f"{where} must have class folders that are numbers, each once. Found: {found}.")
    return indices, tuple(map(str, range(max(indices.values()) + 1)))


def labels_of(names: Sequence[str], indices: Mapping[str, int], where: Path) -> Labels:
    """Return the label of each picture, by its class folder."""
    if strange := sorted({name.partition("/")[0] for name in names} - set(indices)):
        raise InputError(f"The list names classes that {where} does not hold: {some(strange, 3)}.")
    return np.array([indices[name.partition("/")[0]] for name in names], np.int64)


def unusable(root: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """Return which files are missing, and which are empty."""
    kinds: dict[str, list[str]] = {"Missing": [], "Empty": []}
    for name in names:
        try:
            found = (root / name).stat()
        except (OSError, ValueError):
            found = None
        if found is None or not S_ISREG(found.st_mode):
            kinds["Missing"].append(name)
        elif not found.st_size:
            kinds["Empty"].append(name)
    return kinds


def listed(kinds: Mapping[str, list[str]]) -> str:
    """Return a sentence per kind of problem; empty if there is none."""
    return " ".join(f"{kind}: {some(found)}." for kind, found in kinds.items() if found)


def found_in(root: Path) -> str:
    """Describe what a folder holds, in a sentence."""
    if not root.is_dir():
        return f"There is no folder {root}."
    return f"Found: {some(sorted(path.name for path in root.iterdir())) or 'nothing'}."
